package engine

import (
	"context"

	"neuroprefetcher/runtime/model"
)

// Scored is what the model thought of one token of a prompt before it saw it.
type Scored struct {
	LogProb float64
	Top     []model.Ranked // the likeliest tokens at that place, best first
}

// PrefillScored runs ids as the beginning of a new sequence and tells of every token but the first how likely it was,
// with the k likeliest tokens at its place. It returns the vocabulary scores after the last token, as Prefill does.
//
// In sparse mode the first token runs through whole layers and every later one is a step of the token loop, so that the
// figures are those of generation; package eval does the same. stepped, if any, is called after each such step.
func (e *Engine) PrefillScored(ctx context.Context, ids []int32, k int, stepped func()) ([]float32, []Scored, error) {
	e.Reset()
	if e.Plan.Mode == ModeSparse && len(ids) > 1 && len(ids) <= e.Context() {
		return e.stepScored(ctx, ids, k, stepped)
	}
	if len(ids) == 0 {
		_, err := e.Prefill(ctx, ids)
		return nil, nil, err
	}
	out := make([]Scored, len(ids)-1)
	lp, top := make([]float64, e.Plan.Microbatch), make([][]model.Ranked, e.Plan.Microbatch)
	err := e.prefill(ctx, ids, func(from, t int, x []float32) {
		if t = min(t, len(ids)-1-from); t <= 0 {
			return
		}
		e.batch.TopLogProbs(lp[:t], top[:t], k, x, ids[from+1:from+1+t])
		for i := range t {
			out[from+i] = Scored{lp[i], append([]model.Ranked(nil), top[i]...)}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return e.logits, out, nil
}

func (e *Engine) stepScored(ctx context.Context, ids []int32, k int, stepped func()) ([]float32, []Scored, error) {
	logits, err := e.Prefill(ctx, ids[:1])
	out := make([]Scored, 0, len(ids)-1)
	for _, id := range ids[1:] {
		if err != nil {
			return nil, nil, err
		}
		if id < 0 || int(id) >= len(logits) {
			break // Step names it
		}
		lp, top := model.Rank(logits, id, k, nil)
		out = append(out, Scored{lp, top})
		if logits, err = e.Step(ctx, id); err == nil && stepped != nil {
			stepped()
		}
	}
	if err == nil && len(out) < len(ids)-1 {
		logits, err = e.Step(ctx, ids[len(out)+1])
	}
	return logits, out, err
}

// LayerRows counts the rows of one sparse layer: computed, and read for it.
type LayerRows struct{ Needed, Read int64 }

// AddLayerRows adds the rows of the last step to counts, one per layer; dense layers have none. It allocates nothing.
func (e *Engine) AddLayerRows(counts []LayerRows) {
	for l, s := range e.sparse {
		if s != nil && l < len(counts) {
			counts[l].Needed += int64(len(s.active))
			counts[l].Read += int64(len(s.delta.In))
		}
	}
}
