package predictor

import (
	"fmt"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
)

// Names of the tensors in means.safetensors, for a selector and a layer l ≥ 1.
func MeanName(selector string, l int) string { return fmt.Sprintf("mean.%s.%d", selector, l) } // F16 (M)
func SumName(selector string, l int) string  { return fmt.Sprintf("sum.%s.%d", selector, l) }  // F32 (H)

// Means stand in for the neurons that a sparse layer leaves out: what they add on average.
type Means struct {
	first int
	mean  [][]float32 // (M) per layer from first: mean activation silu(g)·u of a neuron over the tokens that leave it out
	sum   [][]float32 // (H) Σ_j mean_j·down_j
}

// LoadMeans reads what was measured with a selector, for layers ≥ max(1, firstLayer). It is nil where the file has nothing of
// that selector.
func LoadMeans(path, selector string, cfg *checkpoint.Config, firstLayer int) (*Means, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &Means{first: max(1, firstLayer)}
	if _, ok := f.Info(MeanName(selector, cfg.Layers-1)); !ok {
		return nil, nil
	}
	for l := m.first; l < cfg.Layers; l++ {
		mean, err := finite(f, MeanName(selector, l), "F16", cfg.Intermediate)
		if err != nil {
			return nil, err
		}
		sum, err := finite(f, SumName(selector, l), "F32", cfg.Hidden)
		if err != nil {
			return nil, err
		}
		m.mean, m.sum = append(m.mean, mean), append(m.sum, sum)
	}
	return m, nil
}

// Layer gives a layer's means (M) and their sum (H).
func (m *Means) Layer(l int) (mean, sum []float32) { return m.mean[l-m.first], m.sum[l-m.first] }

// Bytes is what the means hold in memory.
func (m *Means) Bytes() (n int64) {
	for i := range m.mean {
		n += 4 * int64(len(m.mean[i])+len(m.sum[i]))
	}
	return n
}
