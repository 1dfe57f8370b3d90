package predictor

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Static scores by mean importance over the calibration tokens: the same for every token. It is the control that every
// other selector must beat.
type Static struct {
	first  int
	scores [][]float32 // (M) per layer from first
	pins   [][]int32
}

// LoadStatic reads only the static scores and pins of layers ≥ max(1, firstLayer) from the centroids member.
func LoadStatic(path string, cfg *checkpoint.Config, firstLayer int) (*Static, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &Static{first: max(1, firstLayer)}
	for l := s.first; l < cfg.Layers; l++ {
		v, err := scoreRow(f, StaticName(l), cfg.Intermediate)
		if err != nil {
			return nil, err
		}
		pins, err := readPins(f, l, cfg.Intermediate)
		if err != nil {
			return nil, err
		}
		s.scores, s.pins = append(s.scores, v), append(s.pins, pins)
	}
	return s, nil
}

func (s *Static) Name() string                            { return "static" }
func (s *Static) NeedsLayer0() bool                       { return false }
func (s *Static) Observe(pool *kernels.Pool, f *Features) {}
func (s *Static) Scores(layer int, dst []float32)         { copy(dst, s.scores[layer-s.first]) }
func (s *Static) Pins(layer int) []int32                  { return s.pins[layer-s.first] }

// Bytes is what the selector holds in memory.
func (s *Static) Bytes() int64 {
	n := int64(0)
	for i := range s.scores {
		n += int64(len(s.scores[i])+len(s.pins[i])) * 4
	}
	return n
}
