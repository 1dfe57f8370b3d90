package synthetic

import (
	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// Replay is a selector whose scores make the chooser pick exactly the trace's sets. The bundle's own selector is asked
// too, and its answers thrown away, so that a token costs what a real one does. A trace that has come to its end is gone
// through backwards, and so on to and fro: the reuse stays the same.
//
// Chooser settings that overrule scores (a cap on rows, a margin of 1 or more, pins) would bring other sets.
type Replay struct {
	t     *Trace
	inner predictor.Selector
	from  int         // first sparse layer
	token int         // tokens observed
	rows  [][]float32 // (M) per layer from from: 1 for members of the set, else 0
	at    []int       // per layer from from: the token whose set is in rows, from 1; 0 none
}

// NewReplay replays t in front of inner, which may be nil, for the layers from firstLayer on.
func NewReplay(t *Trace, inner predictor.Selector, firstLayer, layers, neurons, kMax int) (*Replay, error) {
	p := t.Params
	if p.Layers != layers || p.Neurons != neurons || p.KMax != kMax {
		return nil, format.Inputf("the trace is for %d layers of %d neurons and K_max %d, not %d of %d and %d", p.Layers, p.Neurons, p.KMax, layers, neurons, kMax)
	}
	r := &Replay{t: t, inner: inner, from: max(1, firstLayer)}
	for l := r.from; l < p.Layers; l++ {
		r.rows, r.at = append(r.rows, make([]float32, p.Neurons)), append(r.at, 0)
	}
	return r, nil
}

func (r *Replay) Name() string { return "trace" }

// NeedsLayer0 is true because Observe counts the tokens.
func (r *Replay) NeedsLayer0() bool { return true }

func (r *Replay) Observe(pool *kernels.Pool, f *predictor.Features) {
	r.token++
	if r.inner != nil && r.inner.NeedsLayer0() {
		r.inner.Observe(pool, f)
	}
}

func (r *Replay) Scores(layer int, dst []float32) {
	if r.inner != nil {
		r.inner.Scores(layer, dst)
	}
	i := layer - r.from
	row := r.rows[i]
	for r.at[i] < r.token {
		r.advance(layer, row, r.at[i])
		r.at[i]++
	}
	copy(dst, row)
}

// advance goes from the set of token i, counted from 1 with 0 for none, to the next.
func (r *Replay) advance(layer int, row []float32, i int) {
	if i == 0 {
		for _, n := range r.t.first[layer-1] {
			row[n] = 1
		}
		return
	}
	steps := r.t.Params.Tokens
	i = (i - 1) % (2 * steps)
	var in, out []uint16
	if i < steps {
		in, out = r.t.step(layer, i)
	} else {
		out, in = r.t.step(layer, 2*steps-1-i)
	}
	for _, n := range out {
		row[n] = 0
	}
	for _, n := range in {
		row[n] = 1
	}
}

// Pins are none: they would be in every set.
func (r *Replay) Pins(int) []int32 { return nil }

// Bytes is what the selector holds in memory, the trace included.
func (r *Replay) Bytes() int64 {
	n := r.t.Bytes()
	for _, row := range r.rows {
		n += 4 * int64(len(row))
	}
	if r.inner != nil {
		n += r.inner.Bytes()
	}
	return n
}
