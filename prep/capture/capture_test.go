package capture

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/threshold"
	"neuroprefetcher/runtime/predictor"
)

const tiny = "../../pipelines/tiny/"

func open(t *testing.T) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(tiny + "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// env has the threshold stage done.
func env(t *testing.T, threads int, o Options) *stage.Env {
	t.Helper()
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	if _, err := threshold.Run(context.Background(), e, threshold.Options{Checkpoint: o.Checkpoint, Texts: o.Texts, Tokens: o.Tokens, Window: o.Window}); err != nil {
		t.Fatal(err)
	}
	return e
}

func options(t *testing.T) Options {
	return Options{Checkpoint: open(t), Texts: []string{tiny + "calibration.txt"}, Tokens: 70, Window: 16, Part: 32}
}

// TestCapture compares masks, features and sums with a float64 forward pass written apart.
func TestCapture(t *testing.T) {
	o := options(t)
	e := env(t, 2, o)
	report, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := o.Checkpoint.Config
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.PartTokens) != 3 || c.Tokens != 70 {
		t.Fatalf("parts %v of %d tokens", c.PartTokens, c.Tokens)
	}
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		t.Fatal(err)
	}
	// What the reference sees: per layer, per token.
	all := make([][]seen, cfg.Layers)
	r := &reference{t, o.Checkpoint, cfg}
	for _, w := range c.Windows() {
		for l, layer := range r.run(txt.Tokens[w.Start : w.Start+w.Len]) {
			all[l] = append(all[l], layer...)
		}
	}
	near := func(got, want, scale float64) bool { return math.Abs(got-want) <= 5e-3*scale }
	x := make([]float32, cfg.Hidden)
	for i, s := range all[0] {
		for j, want := range [][]float64{s.embed, s.attn, s.mlpIn, s.resid} {
			c.Feature(j, i, x)
			scale := 0.0
			for _, v := range want {
				scale = max(scale, math.Abs(v))
			}
			for n, v := range want {
				if !near(float64(x[n]), v, scale) {
					t.Fatalf("token %d feature %s[%d]: %v, want %v", i, predictor.FeatureNames[j], n, x[n], v)
				}
			}
		}
	}
	sums, first, err := c.Importance()
	if err != nil {
		t.Fatal(err)
	}
	words := predictor.Words(cfg.Intermediate)
	masks := make([]uint64, c.Tokens*words)
	borderline, total := 0, 0
	for l := range all {
		wantAll, wantFirst := make([]float64, cfg.Intermediate), make([]float64, cfg.Intermediate)
		for i, s := range all[l] {
			for n, v := range s.importance {
				wantAll[n] += v
				if i%o.Window == 0 {
					wantFirst[n] += v
				}
			}
		}
		for n := range wantAll {
			if !near(sums[l][n], wantAll[n], wantAll[n]+0.1) || !near(first[l][n], wantFirst[n], wantFirst[n]+0.1) {
				t.Fatalf("layer %d neuron %d: importance %v (position 0: %v), want %v (%v)", l, n, sums[l][n], first[l][n], wantAll[n], wantFirst[n])
			}
		}
		for p := range predictor.Projections {
			if err := c.Masks(p, l, masks); err != nil {
				t.Fatal(err)
			}
			limit := float64(c.Thresholds.Value(l, p))
			set := 0
			for i, s := range all[l] {
				for n, v := range [][]float64{s.gate, s.up}[p] {
					on := masks[i*words+n/64]>>(n%64)&1 == 1
					if on {
						set++
					}
					total++
					if math.Abs(v-limit) < 5e-3*max(1, limit) {
						borderline++
					} else if on != (v >= limit) {
						t.Fatalf("layer %d projection %d token %d neuron %d: bit %v, magnitude %v, threshold %v", l, p, i, n, on, v, limit)
					}
				}
			}
			// The thresholds come from the same tokens, so the density holds exactly.
			if share := float64(set) / float64(c.Tokens*cfg.Intermediate); share > o.Density && share > DefaultDensity || share < DefaultDensity-0.01 {
				t.Errorf("layer %d projection %d: density %v", l, p, share)
			}
		}
	}
	if float64(borderline) > 0.05*float64(total) {
		t.Errorf("%d of %d magnitudes are too near the threshold to tell", borderline, total)
	}
	if d := report.Values["density_gate"].(float64); d > DefaultDensity || d < DefaultDensity-0.01 {
		t.Errorf("report says gate density %v", d)
	}
}

func files(t *testing.T, work string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, _ := filepath.Glob(filepath.Join(work, "capture", "*"))
	for _, name := range names {
		if filepath.Base(name) == "stage.json" {
			continue // has times
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = string(b)
	}
	return out
}

// TestSameBytes asks for the same files with one and two threads, with and without room for all layers, and after an
// interruption.
func TestSameBytes(t *testing.T) {
	o := options(t)
	a := env(t, 1, o)
	if _, err := Run(context.Background(), a, o); err != nil {
		t.Fatal(err)
	}
	want := files(t, a.Work)
	if len(want) != 2*3+1 {
		t.Fatalf("files %d, want two per part and a description", len(want))
	}
	b := env(t, 2, o)
	cfg := o.Checkpoint.Config
	b.Memory = 3 << 20 // one layer of 470 KiB, but not six
	ctx := &countdown{Context: context.Background(), n: 11}
	if _, err := Run(ctx, b, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted run: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(b.Work, "capture", "masks-*"))
	if len(left) == 0 || len(left) == 3 {
		t.Fatalf("%d parts are left, want some but not all", len(left))
	}
	if _, err := calib.OpenCapture(filepath.Join(b.Work, "capture"), cfg); err == nil {
		t.Error("half a capture can be opened")
	}
	if _, err := Run(context.Background(), b, o); err != nil {
		t.Fatal(err)
	}
	got := files(t, b.Work)
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s has other bytes", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	if r, err := Run(context.Background(), b, o); err != nil || !r.Skipped {
		t.Errorf("third run: skipped %v, %v", r.Skipped, err)
	}
	o.Density = 0.2 // thresholds for it follow from the counters that are there
	if r, err := Run(context.Background(), b, o); err != nil || r.Skipped || r.Values["density_up"].(float64) > 0.2 {
		t.Errorf("another density: %+v, %v", r, err)
	}
}

// countdown is cancelled after n looks at it.
type countdown struct {
	context.Context
	n int
}

func (c *countdown) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestAllOnes: at density 1 every bit is set.
func TestAllOnes(t *testing.T) {
	o := options(t)
	o.Tokens, o.Density = 1, 1
	e := env(t, 1, o)
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), o.Checkpoint.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mask := make([]uint64, predictor.Words(o.Checkpoint.Config.Intermediate))
	if err := c.Masks(1, 3, mask); err != nil {
		t.Fatal(err)
	}
	if n := kernels.Popcount(mask); n != o.Checkpoint.Config.Intermediate {
		t.Errorf("%d bits of %d", n, o.Checkpoint.Config.Intermediate)
	}
}

// TestNonFinite: an overflow in the one window that the threshold stage did not look at stops the run and is named by layer,
// token and file.
func TestNonFinite(t *testing.T) {
	const window, seen = 256, 32_768 / 256
	c, err := checkpoint.Open(checkpointtest.Dir(t, checkpointtest.Overflow))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for i, text := range []string{strings.Repeat("z", seen*window), strings.Repeat("qwxj", window/4)} {
		if err := os.WriteFile(names[i], []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Checkpoint: c, Texts: names, Tokens: (seen + 1) * window, Window: window}
	_, err = Run(context.Background(), env(t, 2, o), o)
	if !errors.Is(err, format.ErrInput) {
		t.Fatalf("overflow: %v", err)
	}
	for _, part := range []string{"layer 1", "token 32768 ", names[1]} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q lacks %q", err, part)
		}
	}
}

// TestDamage bends a finished capture; opening it must refuse, naming the file.
func TestDamage(t *testing.T) {
	o := options(t)
	e := env(t, 1, o)
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	dir, cfg := filepath.Join(e.Work, "capture"), o.Checkpoint.Config
	meta := filepath.Join(dir, calib.MetaFile)
	good, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", strings.Replace(string(good), `"tokens": 70`, `"tokens": 71`, 1),
		strings.Replace(string(good), `"hidden": 128`, `"hidden": 64`, 1), strings.Replace(string(good), "32,", "31,", 1),
		strings.Replace(string(good), `"window": 16`, `"window": 0`, 1)} {
		if bad == string(good) {
			t.Fatal("nothing was bent")
		}
		if err := os.WriteFile(meta, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := calib.OpenCapture(dir, cfg); !errors.Is(err, format.ErrInput) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	if err := os.WriteFile(meta, good, 0o666); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, calib.MasksFile(1))
	b, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, bytes.Clone(b[:len(b)-8]), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := calib.OpenCapture(dir, cfg); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), part) {
		t.Errorf("a short part: %v", err)
	}
	// The stage sees it too and makes it again.
	if r, err := Run(context.Background(), e, o); err != nil || r.Skipped {
		t.Errorf("run over a damaged part: skipped %v, %v", r.Skipped, err)
	}
	if got, _ := os.ReadFile(part); !bytes.Equal(got, b) {
		t.Error("the damaged part was not made again")
	}
}
