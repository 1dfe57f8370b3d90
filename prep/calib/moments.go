package calib

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/runtime/predictor"
)

// The moments stage's files. MomentsFile has, in float64, sums over tokens of the RMS-normalised residual stream x_s
// (H, no weight) at the sites s of package predictor: sum.s (H) = Σ x_s, gram.s (H, H) = Σ x_s·x_sᵀ, and
// cross.s.t (H, H) = Σ x_s·x_tᵀ. Files of disjoint texts add up.
const (
	MomentsFile     = "moments.safetensors"
	MomentsMetaFile = "moments.json"
)

func SumName(site int) string       { return fmt.Sprintf("sum.%d", site) }
func GramName(site int) string      { return fmt.Sprintf("gram.%d", site) }
func CrossName(src, dst int) string { return fmt.Sprintf("cross.%d.%d", src, dst) }

// MomentsMeta is the content of MomentsMetaFile.
type MomentsMeta struct {
	Layers int    `json:"layers"`
	Hidden int    `json:"hidden"`
	Tokens int    `json:"tokens"` // in the sums: those not at position 0 of their window
	Window int    `json:"window"`
	Lags   []int  `json:"lags"` // ascending
	Extra  []Pair `json:"extra,omitempty"`
	Text   string `json:"text_sha256"`
}

// Pair is a source site of a layer besides those of the lags.
type Pair struct {
	Layer int `json:"layer"`
	Site  int `json:"site"`
}

// maxExtra bounds Extra.
const maxExtra = 1 << 16

// Pairs lists, layer by layer, the sources whose cross-moments with the layer's MLP input are kept.
func (m *MomentsMeta) Pairs(layer int) (sources []int) {
	if layer == 0 {
		return nil
	}
	for _, lag := range m.Lags {
		if s := predictor.Source(layer, lag); !slices.Contains(sources, s) {
			sources = append(sources, s)
		}
	}
	for _, p := range m.Extra {
		if p.Layer == layer && !slices.Contains(sources, p.Site) {
			sources = append(sources, p.Site)
		}
	}
	return sources
}

// LastUse is, for every site, the last layer that asks for it; −1 for a site that none does.
func (m *MomentsMeta) LastUse() []int {
	last := make([]int, 2*m.Layers)
	for s := range last {
		last[s] = -1
	}
	for l := 1; l < m.Layers; l++ {
		last[predictor.MLPSite(l)] = l
		for _, s := range m.Pairs(l) {
			last[s] = l // layers ascend
		}
	}
	return last
}

// Sites tells which sites are a source or a layer's MLP input, 2·Layers values.
func (m *MomentsMeta) Sites() []bool {
	used := make([]bool, 2*m.Layers)
	for l := 1; l < m.Layers; l++ {
		used[predictor.MLPSite(l)] = true
		for _, s := range m.Pairs(l) {
			used[s] = true
		}
	}
	return used
}

// Moments is a finished moments stage, its file mapped.
type Moments struct {
	MomentsMeta
	f *tensors.File
}

// OpenMoments opens the moments stage's folder and holds every tensor against the shapes.
func OpenMoments(dir string, cfg *checkpoint.Config) (_ *Moments, err error) {
	path := filepath.Join(dir, MomentsMetaFile)
	b, err := format.ReadFile(path, maxMeta)
	if err != nil {
		return nil, format.Hint(format.Inputf("no finished moments: %w", err), "run npprep moments with the same --work")
	}
	m := &Moments{}
	if err := json.Unmarshal(b, &m.MomentsMeta); err != nil {
		return nil, format.Corruptf("%s: %w", path, err)
	}
	if m.Layers != cfg.Layers || m.Hidden != cfg.Hidden {
		return nil, format.Inputf("%s: moments of another model shape (%d layers, %d hidden)", path, m.Layers, m.Hidden)
	}
	if m.Tokens < 1 || len(m.Lags) == 0 || len(m.Lags) > 2*predictor.MaxLag || !slices.IsSorted(m.Lags) || m.Lags[0] < 1 || m.Lags[len(m.Lags)-1] > predictor.MaxLag {
		return nil, format.Corruptf("%s: %d tokens, lags %v", path, m.Tokens, m.Lags)
	}
	if len(m.Extra) > maxExtra {
		return nil, format.Corruptf("%s: %d extra sources", path, len(m.Extra))
	}
	for _, p := range m.Extra {
		if p.Layer < 1 || p.Layer >= m.Layers || p.Site < 0 || p.Site >= predictor.MLPSite(p.Layer) {
			return nil, format.Corruptf("%s: site %d as a source of layer %d", path, p.Site, p.Layer)
		}
	}
	if m.f, err = tensors.Open(filepath.Join(dir, MomentsFile)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	for s, used := range m.Sites() {
		if !used {
			continue
		}
		if in, ok := m.f.Info(SumName(s)); !ok || in.DType != "F64" || len(in.Shape) != 1 || in.Shape[0] != m.Hidden {
			return nil, format.Inputf("%s: tensor %s is missing or not F64 (%d)", m.f.Path(), SumName(s), m.Hidden)
		}
		if err := want(m.f, GramName(s), "F64", m.Hidden, m.Hidden); err != nil {
			return nil, err
		}
	}
	for l := range m.Layers {
		for _, s := range m.Pairs(l) {
			if err := want(m.f, CrossName(s, predictor.MLPSite(l)), "F64", m.Hidden, m.Hidden); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// Close unmaps the file.
func (m *Moments) Close() { m.f.Close() }

// Mean is Σ x_s ÷ tokens (H).
func (m *Moments) Mean(site int) ([]float64, error) { return m.mean(SumName(site)) }

// Gram is Σ x_s·x_sᵀ ÷ tokens (H, H), exactly symmetric: the lower triangle counts.
func (m *Moments) Gram(site int) ([]float64, error) {
	g, err := m.mean(GramName(site))
	if err != nil {
		return nil, err
	}
	h := m.Hidden
	for i := range h {
		if d := g[i*h+i]; d < 0 {
			return nil, format.Corruptf("%s: tensor %s: the mean square of element %d is %v", m.f.Path(), GramName(site), i, d)
		}
		for j := range i {
			g[j*h+i] = g[i*h+j]
		}
	}
	return g, nil
}

// Cross is Σ x_s·x_tᵀ ÷ tokens (H, H).
func (m *Moments) Cross(src, dst int) ([]float64, error) { return m.mean(CrossName(src, dst)) }

func (m *Moments) mean(name string) ([]float64, error) {
	b, err := m.f.Bytes(name)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(b)/8)
	for i := range out {
		v := math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, format.Corruptf("%s: tensor %s: element %d is %v", m.f.Path(), name, i, v)
		}
		out[i] = v / float64(m.Tokens)
	}
	m.f.Release(name)
	return out, nil
}

// RawF64 copies a tensor of float64.
func RawF64(f *tensors.File, name string, dst []float64) error {
	b, err := f.Bytes(name)
	if err != nil {
		return err
	}
	if len(b) != 8*len(dst) {
		return format.Inputf("%s: tensor %s has %d bytes, want %d", f.Path(), name, len(b), 8*len(dst))
	}
	for i := range dst {
		dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}
