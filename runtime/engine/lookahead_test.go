package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/predictor/lookaheadtest"
	"neuroprefetcher/runtime/resident"
	"neuroprefetcher/runtime/storage"
)

// randomLookahead is a lookahead selector of random factors for the engine's layers.
func randomLookahead(t *testing.T, e *Engine, lag int) *predictor.Lookahead {
	t.Helper()
	path := filepath.Join(t.TempDir(), bundle.MemberLookahead)
	if _, err := lookaheadtest.Write(path, e.Config, lag, 16, 5); err != nil {
		t.Fatal(err)
	}
	s, err := predictor.LoadLookahead(path, e.Bundle.Path(bundle.MemberCentroids), e.Config, e.Plan.Dense)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLookaheadLaws holds laws 1 and 2 for a selector that names layers on the way: with every neuron it is the resident
// model, and with fewer its output depends on no setting and no history.
func TestLookaheadLaws(t *testing.T) {
	dir := buildBundle(t, 0)
	want := trace(t, openEngine(t, dir, Options{Mode: ModeResident}))
	for _, lag := range []int{1, 2, 5} {
		e := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 1, KMax: 448})
		e.selector = randomLookahead(t, e, lag)
		sameBits(t, fmt.Sprintf("lag %d with every neuron", lag), trace(t, e), want)

		if lag != 2 {
			continue
		}
		var sparse []float32
		for name, o := range map[string]Options{
			"defaults":      {},
			"depth 1":       {Storage: storage.Options{QueueDepth: 1, Staging: 4096}},
			"gap of 64 KiB": {Storage: storage.Options{Gap: 1 << 16}},
			"pread":         {Storage: storage.Options{Backend: "pread"}},
			"1 thread":      {Threads: 1},
			"3 threads":     {Threads: 3},
		} {
			o.Mode, o.Dense, o.KMax = ModeSparse, 2, 200
			e := openEngine(t, dir, o)
			e.selector = randomLookahead(t, e, lag)
			for _, start := range []string{"cold", "warm"} {
				got := trace(t, e)
				if sparse == nil {
					sparse = got
				}
				sameBits(t, fmt.Sprintf("lag %d, %s, %s", lag, name, start), got, sparse)
				checkMaps(t, e)
			}
		}
	}
}

// watched notes at which sites layers are named, and what has been submitted when the next site comes.
type watched struct {
	*predictor.Lookahead
	t     *testing.T
	e     *Engine
	named map[int]int // layer → site, of the token in progress
}

func (w *watched) Look(pool *kernels.Pool, site int, x []float32) []int {
	if site == 0 {
		clear(w.named)
	}
	for l := w.e.Plan.Dense; l < w.e.Config.Layers; l++ {
		at, ok := w.named[l]
		if sent := w.e.sparse[l].sent; sent != (ok && site <= predictor.MLPSite(l)) {
			w.t.Errorf("site %d: reads of layer %d, named at %d (%v), submitted: %v", site, l, at, ok, sent)
		}
	}
	layers := w.Lookahead.Look(pool, site, x)
	for _, l := range layers {
		w.named[l] = site
	}
	return layers
}

// TestLookaheadOnTheWay compares each step with a resident model that computes, in each layer, the neurons which a second
// selector chooses from the stream at the layer's source site; and holds that reads are submitted right there.
func TestLookaheadOnTheWay(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, lag := range []int{1, 2, 3} {
		e := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 200})
		e.selector = &watched{randomLookahead(t, e, lag), t, e, map[int]int{}}
		choose := randomLookahead(t, e, lag)
		ref := openEngine(t, dir, Options{Mode: ModeResident})
		for _, x := range []*Engine{e, ref} {
			if _, err := x.Prefill(context.Background(), script[0].prompt); err != nil {
				t.Fatal(err)
			}
		}
		scores := make([]float32, ref.geometry.Neurons)
		for _, id := range script[0].steps {
			got, err := e.Step(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			s, x, pos := ref.step1, ref.x, ref.kv.Len
			active := map[int][]int32{}
			look := func(site int) {
				for _, l := range choose.Look(nil, site, x) {
					if site != predictor.Source(l, lag) {
						t.Fatalf("lag %d: layer %d at site %d", lag, l, site)
					}
					choose.Scores(l, scores)
					active[l] = make([]int32, 200)
					(&resident.Chooser{KMax: 200, Cap: -1, Pins: choose.Pins(l)}).Choose(scores, nil, active[l])
				}
			}
			ref.m.EmbedTokens(x, []int32{id})
			for l, layer := range ref.m.Layers {
				look(2 * l)
				s.Attention(layer, x, ref.kv.Layers[l], pos)
				look(2*l + 1)
				s.BeginMLP(layer, x)
				off := ref.denseOff
				if l >= 2 {
					off = nil
					for _, n := range active[l] {
						off = append(off, ref.denseOff[n])
					}
					if !slices.Equal(active[l], e.Active(l)) {
						t.Fatalf("lag %d, layer %d: the engine computes other neurons", lag, l)
					}
				}
				s.MLPRows(ref.dense[l].Mem, off)
				s.EndMLP(x)
			}
			s.Logits(ref.logits, x)
			ref.kv.Len++
			sameBits(t, fmt.Sprintf("lag %d, token at %d", lag, pos), got, ref.logits)
		}
		ctx := context.Background()
		if n := testing.AllocsPerRun(10, func() {
			if _, err := e.Step(ctx, 515); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("lag %d: a token allocates %v times", lag, n)
		}
	}
}
