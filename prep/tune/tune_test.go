package tune_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/ladder"
	"neuroprefetcher/prep/prepare"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/tune"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/eval"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

const (
	tiny    = "../../pipelines/tiny/checkpoint"
	heldout = "../../pipelines/tiny/heldout.txt"
	window  = 64
	windows = 3
)

func env(t *testing.T, work string) *stage.Env {
	e := &stage.Env{Work: work, Seed: 1, Quiet: true, Log: io.Discard, Pool: kernels.NewPool(0)}
	t.Cleanup(e.Pool.Close)
	return e
}

// TestTune prepares the tiny model with few neurons and looks at what tuning gave to the bundle.
func TestTune(t *testing.T) {
	c, err := checkpoint.Open(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	out, work := filepath.Join(dir, "bundle"), filepath.Join(dir, "work")
	o := prepare.Options{Checkpoint: c, Out: out, Texts: []string{"../../pipelines/tiny/calibration.txt"}, Tokens: 2048, Window: 128, Density: 0.4, Centroids: 16,
		Epochs: 1, KMax: 150, Tool: "test", DenseLayers: 2}
	run := func() []stage.Report {
		t.Helper()
		r, err := prepare.Run(context.Background(), env(t, work), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := run()
	b, err := bundle.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	s := b.Manifest.Sparse
	var entries []string
	for _, q := range s.Quality {
		name := q.Selector
		if q.ReadCap > 0 {
			name += " capped"
		}
		entries = append(entries, name)
		if q.Seen || q.Tokens != 16*127 {
			t.Errorf("%+v: want %d tokens of text that nothing was fitted to", q, 16*127)
		}
	}
	if want := []string{"lookahead", "lookahead capped", "paper", "paper capped", "static"}; !slices.Equal(entries, want) {
		t.Errorf("quality of %v, want %v", entries, want)
	}
	if s.Best(false) != bundle.SelectorLookahead || s.Best(true) != bundle.SelectorLookahead {
		t.Errorf("best are %s and %s: %v", s.Best(false), s.Best(true), s.Quality)
	}
	checkSums(t, b, c)
	checkDevice(t, out)

	second := run()
	for i, r := range second {
		if !r.Skipped || r.Stage != first[i].Stage {
			t.Errorf("stage %s is not up to date", r.Stage)
		}
	}
	// What was measured of one bundle is not told of another.
	o.KMax, o.TuneWindows = 200, -1
	run()
	if b, err = bundle.Open(out); err != nil {
		t.Fatal(err)
	}
	if b.Has(bundle.MemberMeans) || b.Manifest.Sparse.Quality != nil {
		t.Errorf("the bundle of K_max 200 has what was measured at 150: %v", b.Manifest.Sparse.Quality)
	}
	// And comes back with it.
	o.KMax, o.TuneWindows = 150, 0
	if again := run(); !again[slices.IndexFunc(again, func(r stage.Report) bool { return r.Stage == "tune" })].Skipped {
		t.Error("tune ran again")
	}
	if b, err = bundle.Open(out); err != nil || !slices.Equal(b.Manifest.Sparse.Quality, s.Quality) {
		t.Errorf("%v: %v, want %v", err, b.Manifest.Sparse.Quality, s.Quality)
	}
	// Where measuring does not fit, the bundle is published all the same, and the user is told.
	small, log := env(t, work), &bytes.Buffer{}
	small.Memory, small.Log = 1<<20, log
	bo := assemble.Options{Checkpoint: c, Out: filepath.Join(dir, "other"), KMax: 150, Tool: "test"}
	if _, err := tune.Run(context.Background(), small, tune.Options{Assemble: bo, Texts: o.Texts, Windows: 3, Window: 128}); err != nil {
		t.Error(err)
	}
	if other, err := bundle.Open(bo.Out); err != nil || !strings.Contains(log.String(), "were not measured") || !strings.Contains(log.String(), "--memory is 1.0 MiB") {
		t.Errorf("%v, %v, %s", other, err, log)
	}
}

// checkSums holds the sums against the means and the checkpoint's down_proj, and damage of the member against refusal.
func checkSums(t *testing.T, b *bundle.Bundle, c *checkpoint.Checkpoint) {
	t.Helper()
	cfg, path := c.Config, b.Path(bundle.MemberMeans)
	f, err := tensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, sel := range []string{bundle.SelectorLookahead} {
		m, err := predictor.LoadMeans(path, sel, cfg, 2)
		if err != nil || m == nil {
			t.Fatalf("%s: %v, %v", sel, m, err)
		}
		for l := 2; l < cfg.Layers; l++ {
			mean, sum := m.Layer(l)
			rows, err := model.LoadRows(cfg, &model.CheckpointSource{C: c}, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			largest := 0.0
			for i := range sum {
				want := 0.0
				for n, v := range mean {
					want += float64(v) * float64(kernels.F16Value(rows.Mem[n*rows.Stride+2*cfg.Hidden+i]))
				}
				if largest = max(largest, math.Abs(want)); math.Abs(want-float64(sum[i])) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("%s, layer %d, element %d: sum %v, want %v", sel, l, i, sum[i], want)
				}
			}
			if largest == 0 {
				t.Errorf("%s, layer %d: no mean", sel, l)
			}
		}
	}
	if m, err := predictor.LoadMeans(path, bundle.SelectorPaper, cfg, 2); m != nil || err != nil {
		t.Errorf("paper has means: %v, %v", m, err)
	}
}

// checkDevice holds the ladder, with the bundle's means and without, against the engine that reads rows from disk.
func checkDevice(t *testing.T, dir string) {
	t.Helper()
	raw, err := os.ReadFile(heldout)
	if err != nil {
		t.Fatal(err)
	}
	lo := ladder.Options{Bundles: []string{dir}, Dense: []int{2}, Text: heldout, Window: window, Windows: windows, Budgets: []ladder.Budget{{Share: 0.1}}, Device: true,
		Selectors: []string{bundle.SelectorLookahead, bundle.SelectorStatic}}
	with, err := ladder.Run(context.Background(), env(t, t.TempDir()), lo)
	if err != nil {
		t.Fatal(err)
	}
	lo.Device = false
	batch, err := ladder.Run(context.Background(), env(t, t.TempDir()), lo)
	if err != nil {
		t.Fatal(err)
	}
	lo.Means = ladder.NoMeans
	without, err := ladder.Run(context.Background(), env(t, t.TempDir()), lo)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range with.Rungs {
		if x.Selector == ladder.DenseName {
			continue
		}
		e, err := engine.Open(context.Background(), dir, engine.Options{Mode: engine.ModeSparse, Dense: x.Dense, KMax: x.KMax, Selector: x.Selector, ReadCap: x.ReadCap, Context: window})
		if err != nil {
			t.Fatal(err)
		}
		p, err := eval.Run(context.Background(), e, e.Tokenizer.Encode(string(raw), false), eval.Protocol{Window: window, MaxWindows: windows}, nil)
		e.Close()
		if err != nil {
			t.Fatal(err)
		}
		if p.Perplexity != x.Perplexity {
			t.Errorf("%s: perplexity %v, the engine has %v", x.Rung, x.Perplexity, p.Perplexity)
		}
		if y := batch.Rungs[i].Perplexity; math.Abs(y-p.Perplexity) > 5e-3*p.Perplexity {
			t.Errorf("%s: perplexity %v by products over all tokens, the engine has %v", x.Rung, y, p.Perplexity)
		}
		if y := without.Rungs[i].Perplexity; x.Selector == bundle.SelectorLookahead && math.Abs(y-x.Perplexity) < 1e-3*y {
			t.Errorf("%s: perplexity %v with means and %v without", x.Rung, x.Perplexity, y)
		}
	}
	// A byte of the means that was turned is noticed before the first token.
	path := filepath.Join(dir, bundle.MemberMeans)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bent := slices.Clone(b)
	bent[len(bent)-1] ^= 1
	if err := os.WriteFile(path, bent, 0o666); err != nil {
		t.Fatal(err)
	}
	if e, err := engine.Open(context.Background(), dir, engine.Options{Mode: engine.ModeSparse, Dense: 2, Selector: bundle.SelectorLookahead, Context: window}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a damaged member gives %v", err)
		if err == nil {
			e.Close()
		}
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
