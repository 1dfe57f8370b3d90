package synthetic

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/predictor"
)

// replayed opens the small bundle in sparse mode behind a trace.
func replayed(t testing.TB, p TraceParams, o engine.Options) (*engine.Engine, *Trace) {
	t.Helper()
	path, _ := ensure(t, t.TempDir(), 1)
	tr, err := NewTrace(p)
	if err != nil {
		t.Fatal(err)
	}
	o.Mode, o.Memory, o.Context, o.KMax = engine.ModeSparse, 1<<30, 256, p.KMax
	if o.Wrap == nil {
		o.Wrap = func(inner predictor.Selector, pl *engine.Plan) (predictor.Selector, error) {
			return NewReplay(tr, inner, pl.Dense, small.Layers, small.Intermediate, pl.KMax)
		}
	}
	e, err := engine.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, tr
}

// prompt is any text's ids.
var prompt = []int32{beginID, firstByteID + 'a', firstByteID + 'b', firstByteID + 'c'}

func TestReplayComputesTheTrace(t *testing.T) {
	for _, dense := range []int{1, 3} {
		p := TraceParams{small.Layers, small.Intermediate, small.KMax, 6, 0.83, 1.2, 3}
		e, tr := replayed(t, p, engine.Options{Dense: dense})
		if _, err := e.Prefill(context.Background(), prompt); err != nil {
			t.Fatal(err)
		}
		var want [5][][]int32
		for l := dense; l < small.Layers; l++ {
			s := sets(tr, l)
			back := slices.Clone(s[:len(s)-1])
			slices.Reverse(back)
			want[l] = append(append(s, back...), s[1:]...) // to, fro, and to again
		}
		for i := range 3*p.Tokens + 1 {
			logits, err := e.Step(context.Background(), firstByteID+int32(i))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range logits {
				if v != v || math.IsInf(float64(v), 0) {
					t.Fatalf("token %d: a logit is %v", i, v)
				}
			}
			for l := range small.Layers {
				got := e.Active(l)
				if l < dense {
					if got != nil {
						t.Errorf("layer %d is dense and has an active set", l)
					}
					continue
				}
				if !slices.Equal(got, want[l][i]) {
					t.Fatalf("d = %d, token %d, layer %d: the engine computed other neurons than the trace names", dense, i, l)
				}
			}
			if i == 0 {
				e.ResetStats() // the first token goes from the prompt's choice to the trace's first set
			}
		}
		s := e.Stats()
		if n := int64(3 * p.Tokens * (small.Layers - dense)); s.Needed != n*int64(p.KMax) || s.Read != n*int64(p.Incoming()) {
			t.Errorf("d = %d: %d rows needed, %d read; want %d and %d", dense, s.Needed, s.Read, n*int64(p.KMax), n*int64(p.Incoming()))
		}
	}
}

// TestReplayGoesOnAfterACancelledToken: a token that was given up does not put the sets out of step.
func TestReplayGoesOnAfterACancelledToken(t *testing.T) {
	p := TraceParams{small.Layers, small.Intermediate, small.KMax, 6, 0.83, 1.2, 3}
	e, tr := replayed(t, p, engine.Options{Dense: 2})
	if _, err := e.Prefill(context.Background(), prompt); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Step(cancelled, firstByteID); err == nil {
		t.Fatal("a cancelled step did not fail")
	}
	if _, err := e.Step(context.Background(), firstByteID); err != nil {
		t.Fatal(err)
	}
	for l := 2; l < small.Layers; l++ {
		if all := sets(tr, l); !slices.Equal(e.Active(l), all[0]) && !slices.Equal(e.Active(l), all[1]) {
			t.Errorf("layer %d computed a set that is not in the trace", l)
		}
	}
}

func TestReplayAllocatesNothing(t *testing.T) {
	p := TraceParams{small.Layers, small.Intermediate, small.KMax, 6, 0.83, 1.2, 3}
	e, _ := replayed(t, p, engine.Options{Dense: 2})
	if _, err := e.Prefill(context.Background(), prompt); err != nil {
		t.Fatal(err)
	}
	step := func() {
		if _, err := e.Step(context.Background(), firstByteID); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // the first full sets make room in the read lists
		step()
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}

func TestReplayRefusesAnotherShape(t *testing.T) {
	tr, err := NewTrace(TraceParams{3, 100, 40, 2, 0.8, 1.2, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][3]int{{4, 100, 40}, {3, 101, 40}, {3, 100, 41}} {
		if _, err := NewReplay(tr, nil, 1, x[0], x[1], x[2]); err == nil {
			t.Errorf("%v: accepted", x)
		}
	}
}

// TestBundleRunsByItself: the synthetic bundle works with its own selectors and modes, and they agree where they must.
func TestBundleRunsByItself(t *testing.T) {
	path, _ := ensure(t, t.TempDir(), 1)
	var all [][]float32
	for _, o := range []engine.Options{{Mode: engine.ModeResident}, {Mode: engine.ModeStream, Dense: 2}, {Mode: engine.ModeSparse, Selector: "paper", Dense: 2, KMax: small.Intermediate},
		{Mode: engine.ModeSparse, Selector: "static", Dense: 2}} {
		o.Memory, o.Context = 1<<30, 64
		e, err := engine.Open(context.Background(), filepath.Clean(path), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Prefill(context.Background(), prompt); err != nil {
			t.Fatal(err)
		}
		logits, err := e.Step(context.Background(), firstByteID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Clone(logits))
		if ids := e.Tokenizer.Encode("no noise", false); e.Tokenizer.Decode(ids, true) != "no noise" || e.Tokenizer.Size() != small.Vocab {
			t.Errorf("tokenizer: %d ids of %d", len(ids), e.Tokenizer.Size())
		}
		e.Close()
	}
	if !slices.Equal(all[0], all[1]) || !slices.Equal(all[0], all[2]) {
		t.Error("resident, stream and sparse with every neuron differ")
	}
	if slices.Equal(all[0], all[3]) {
		t.Error("sparse mode gives what dense gives")
	}
}
