package predictor

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

// Features is what layer 0 tells about a token; the slices are (H) and stay the caller's.
type Features struct {
	Embed   []float32 // the token's embedding
	AttnOut []float32 // layer 0's attention output before the residual addition
	MLPIn   []float32 // layer 0's normed MLP input
	Resid   []float32 // the residual stream after layer 0
	Gate0   int32     // layer 0's gate centroid (Centroids.Gate0)
}

// Predictor is the network with float16 weights.
type Predictor struct{}

// LoadPredictor reads predictor.safetensors and keeps the heads of layers ≥ firstLayer.
func LoadPredictor(path string, cfg *checkpoint.Config, firstLayer int) (*Predictor, error) {
	panic("being written")
}

// Predict names a gate and an up centroid for every layer l ≥ max(1, firstLayer), in gate[l-first] and up[l-first].
func (p *Predictor) Predict(pool *kernels.Pool, f *Features, gate, up []int32) { panic("being written") }

// Bytes is what the predictor holds in memory.
func (p *Predictor) Bytes() int64 { return 0 }

// Centroids holds the pruned masks and the score rows of layers ≥ firstLayer, and layer 0's gate centroids.
type Centroids struct{}

// LoadCentroids reads the bundle's centroids member.
func LoadCentroids(path string, cfg *checkpoint.Config, firstLayer int) (*Centroids, error) {
	panic("being written")
}

// Gate0 names the centroid nearest to layer 0's gate mask; gate (M) is gate_proj's output before the activation.
func (c *Centroids) Gate0(gate []float32) int32 { panic("being written") }

// Pins are the neurons of a layer that stay resident, ascending.
func (c *Centroids) Pins(layer int) []int32 { panic("being written") }

// Bytes is what the tables hold in memory.
func (c *Centroids) Bytes() int64 { return 0 }

// Selector names, for one token at a time, a score per neuron of every sparse layer.
type Selector interface {
	Name() string
	NeedsLayer0() bool // Observe must be called with layer 0's features before Scores
	Observe(pool *kernels.Pool, f *Features)
	Scores(layer int, dst []float32)
	Pins(layer int) []int32
	Bytes() int64
}

// Paper scores by the predicted gate and up centroids.
type Paper struct{}

// NewPaper joins a predictor and centroids that were loaded with the same firstLayer.
func NewPaper(p *Predictor, c *Centroids) (*Paper, error) { panic("being written") }

func (s *Paper) Name() string                            { return "paper" }
func (s *Paper) NeedsLayer0() bool                       { return true }
func (s *Paper) Observe(pool *kernels.Pool, f *Features) { panic("being written") }
func (s *Paper) Scores(layer int, dst []float32)         { panic("being written") }
func (s *Paper) Pins(layer int) []int32                  { panic("being written") }
func (s *Paper) Bytes() int64                            { return 0 }

// Gate0 names layer 0's gate centroid for Features.Gate0.
func (s *Paper) Gate0(gate []float32) int32 { panic("being written") }

// Static scores by mean importance over the calibration tokens: the same for every token.
type Static struct{}

// LoadStatic reads only the static scores and pins of layers ≥ firstLayer from the centroids member.
func LoadStatic(path string, cfg *checkpoint.Config, firstLayer int) (*Static, error) {
	panic("being written")
}

func (s *Static) Name() string                            { return "static" }
func (s *Static) NeedsLayer0() bool                       { return false }
func (s *Static) Observe(pool *kernels.Pool, f *Features) {}
func (s *Static) Scores(layer int, dst []float32)         { panic("being written") }
func (s *Static) Pins(layer int) []int32                  { panic("being written") }
func (s *Static) Bytes() int64                            { return 0 }
