package predictor

import (
	"math/bits"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
)

// Paper scores by the predicted gate and up centroids: 2·[n in both] + f_gate(n)·f_up(n), f the marginal frequencies;
// so the intersection comes first, by frequency product, and the rest after it.
type Paper struct {
	p        *Predictor
	c        *Centroids
	gate, up []int32 // centroid per layer from First
}

// NewPaper joins a predictor and centroids that were loaded with the same firstLayer.
func NewPaper(p *Predictor, c *Centroids) (*Paper, error) {
	layers := len(c.base)
	if p.First != c.First || len(p.heads) != 2*layers {
		return nil, format.Inputf("predictor has layers %d..%d, centroids %d..%d: prepare the bundle again",
			p.First, p.First+len(p.heads)/2-1, c.First, c.First+layers-1)
	}
	if p.k0 != c.gate0.table.k {
		return nil, format.Inputf("predictor knows %d centroids of layer 0, the centroids file has %d: prepare the bundle again", p.k0, c.gate0.table.k)
	}
	for i := range layers {
		for proj := range Projections {
			if k, want := p.heads[2*i+proj].k, c.tables[proj][i].k; k != want {
				return nil, format.Inputf("predictor's head %s names %d centroids, the table has %d: prepare the bundle again",
					TableName(proj, c.First+i), k, want)
			}
		}
	}
	return &Paper{p: p, c: c, gate: make([]int32, layers), up: make([]int32, layers)}, nil
}

func (s *Paper) Name() string                            { return "paper" }
func (s *Paper) NeedsLayer0() bool                       { return true }
func (s *Paper) Observe(pool *kernels.Pool, f *Features) { s.p.Predict(pool, f, s.gate, s.up) }
func (s *Paper) Pins(layer int) []int32                  { return s.c.Pins(layer) }
func (s *Paper) Bytes() int64                            { return s.p.Bytes() + s.c.Bytes() }

// Gate0 names layer 0's gate centroid for Features.Gate0 from gate_proj's output (M).
func (s *Paper) Gate0(gate []float32) int32 { return s.c.Gate0(gate) }

// IDs are the centroids last predicted for a layer.
func (s *Paper) IDs(layer int) (gate, up int32) {
	return s.gate[layer-s.c.First], s.up[layer-s.c.First]
}

// Scores writes the layer's scores for the observed token.
func (s *Paper) Scores(layer int, dst []float32) {
	i := layer - s.c.First
	copy(dst, s.c.base[i])
	g, u := s.c.Mask(0, layer, s.gate[i]), s.c.Mask(1, layer, s.up[i])
	for w := range g {
		for both := g[w] & u[w]; both != 0; both &= both - 1 {
			dst[w*64+bits.TrailingZeros64(both)] += 2
		}
	}
}
