package synthetic

import (
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// Ahead replays a trace on the lookahead selector's schedule: a layer's reads are queued lag sites before its MLP, not
// after layer 0 with all others. The first ramp sparse layers are named earlier, one layer more each, so that the drive has
// work while the dense prefix computes. The bundle's own selector is not asked: what predicting costs is not in the run.
type Ahead struct {
	*Replay
	at [][]int // per site: the layers named there, ascending
}

// NewAhead makes r a stepwise selector for a model of that many layers.
func NewAhead(r *Replay, layers, lag, ramp int) *Ahead {
	r.inner = nil
	a := &Ahead{r, make([][]int, 2*layers)}
	for l := r.from; l < layers; l++ {
		site := predictor.Source(l, lag+2*max(0, ramp-(l-r.from)))
		a.at[site] = append(a.at[site], l)
	}
	return a
}

func (a *Ahead) NeedsLayer0() bool { return false }

// Look counts the token at its first site.
func (a *Ahead) Look(_ *kernels.Pool, site int, _ []float32) []int {
	if site == 0 {
		a.token++
	}
	return a.at[site]
}
