package synthetic

import (
	"context"
	"slices"
	"testing"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/predictor"
)

// TestAhead: on the lookahead schedule the same trace brings the same sets and the same logits, bit for bit.
func TestAhead(t *testing.T) {
	p := TraceParams{small.Layers, small.Intermediate, small.KMax, 6, 0.83, 1.2, 3}
	const dense = 2
	plain, tr := replayed(t, p, engine.Options{Dense: dense})
	var engines = []*engine.Engine{plain}
	for _, c := range [][2]int{{1, 0}, {2, 1}, {3, 2}, {5, 3}, {99, 0}} {
		e, _ := replayed(t, p, engine.Options{Dense: dense, Wrap: func(inner predictor.Selector, pl *engine.Plan) (predictor.Selector, error) {
			r, err := NewReplay(tr, inner, pl.Dense, small.Layers, small.Intermediate, pl.KMax)
			if err != nil {
				return nil, err
			}
			return NewAhead(r, small.Layers, c[0], c[1]), nil
		}})
		engines = append(engines, e)
	}
	for _, e := range engines {
		if _, err := e.Prefill(context.Background(), prompt); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		var want []float32
		for k, e := range engines {
			logits, err := e.Step(context.Background(), firstByteID+int32(i))
			if err != nil {
				t.Fatal(err)
			}
			for l := dense; l < small.Layers; l++ {
				if !slices.Equal(e.Active(l), plain.Active(l)) {
					t.Fatalf("schedule %d, token %d, layer %d: other active set", k, i, l)
				}
			}
			if k == 0 {
				want = slices.Clone(logits)
			} else if !slices.Equal(logits, want) {
				t.Fatalf("schedule %d, token %d: other logits", k, i)
			}
		}
	}
}
