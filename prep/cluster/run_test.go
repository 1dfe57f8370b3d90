package cluster

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/calibtest"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

var planted = calibtest.Planted{Config: calibtest.Config(3, 8, 150), Tokens: 900, Window: 64, Parts: 3, Groups: 9, Noise: 0.05, Seed: 5}

func env(t *testing.T, threads int) *stage.Env {
	t.Helper()
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads), Seed: 3}
	t.Cleanup(e.Pool.Close)
	if err := calibtest.Capture(context.Background(), e, planted); err != nil {
		t.Fatal(err)
	}
	return e
}

func tables(t *testing.T, work string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	names, _ := filepath.Glob(filepath.Join(work, "cluster", "*.safetensors"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = b
	}
	return out
}

// TestRunTwice asks for the same bytes with one and two threads, after an interruption, and for no work when nothing
// changed.
func TestRunTwice(t *testing.T) {
	ctx := context.Background()
	o := Options{Config: planted.Config, Centroids: 20}
	a, b := env(t, 1), env(t, 2)
	if _, err := Run(ctx, a, o); err != nil {
		t.Fatal(err)
	}
	want := tables(t, a.Work)
	if len(want) != 6 {
		t.Fatalf("%d tables, want 6", len(want))
	}
	// Interrupted: three tables are there, the folder's key is as it would be.
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Run(stop, b, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled run: %v", err)
	}
	if _, err := Run(ctx, b, o); err != nil {
		t.Fatal(err)
	}
	if got := tables(t, b.Work); !reflect.DeepEqual(got, want) {
		t.Error("two threads give other bytes than one")
	}
	r, err := Run(ctx, b, o)
	if err != nil || !r.Skipped {
		t.Errorf("second run: skipped %v, %v", r.Skipped, err)
	}
	o.Centroids = 7
	if r, err = Run(ctx, b, o); err != nil || r.Skipped {
		t.Errorf("another K: skipped %v, %v", r.Skipped, err)
	}
}

// TestResume asks that finished tables are kept and missing ones made.
func TestResume(t *testing.T) {
	e := env(t, 2)
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), planted.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := Options{Config: planted.Config, Centroids: 20}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := t.TempDir()
	if _, err := run(ctx, e, o, filepath.Join(e.Work, "capture"), dir, nil); err != nil {
		t.Fatal(err)
	}
	kept, gone := calib.TablePath(dir, 1, 0), calib.TablePath(dir, 0, 2)
	before, _ := os.Stat(kept)
	want, _ := os.ReadFile(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := run(ctx, e, o, filepath.Join(e.Work, "capture"), dir, nil); err != nil {
		t.Fatal(err)
	}
	damaged := calib.TablePath(dir, 1, 1)
	good, _ := os.ReadFile(damaged)
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	if err := os.WriteFile(damaged, bad, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := run(context.Background(), e, o, filepath.Join(e.Work, "capture"), dir, nil); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(damaged); !bytes.Equal(again, good) {
		t.Error("a table with a flipped bit was trusted")
	}
	after, _ := os.Stat(kept)
	got, _ := os.ReadFile(gone)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("a finished table was made again")
	}
	if !bytes.Equal(got, want) {
		t.Error("a table made again has other bytes")
	}
}

func TestBudget(t *testing.T) {
	e := env(t, 1)
	e.Memory = 10_000
	if _, err := Run(context.Background(), e, Options{Config: planted.Config}); !errors.Is(err, format.ErrFit) {
		t.Errorf("budget of 10 kB: %v", err)
	}
}

// TestPrune checks the centroids member against plain definitions.
func TestPrune(t *testing.T) {
	ctx, e, cfg := context.Background(), env(t, 2), planted.Config
	if _, err := Run(ctx, e, Options{Config: cfg, Centroids: 20}); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "centroids")
	const kMax = 60
	r, err := Prune(ctx, e.Work, cfg, kMax, out)
	if err != nil {
		t.Fatal(err)
	}
	m, w := cfg.Intermediate, predictor.Words(cfg.Intermediate)
	keep := int(math.Round(math.Sqrt(float64(kMax)/float64(m)) * float64(m)))
	f, err := tensors.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := 0.0
	for l := 1; l < cfg.Layers; l++ {
		var masks [2][]uint64
		var ids [2][]int32
		for p := range predictor.Projections {
			tab, err := calib.OpenTable(calib.TablePath(filepath.Join(e.Work, "cluster"), p, l), m, planted.Tokens)
			if err != nil {
				t.Fatal(err)
			}
			counts, _ := tab.Counts()
			ids[p], _ = tab.IDs()
			masks[p], err = f.U64(predictor.TableName(p, l))
			if err != nil {
				t.Fatal(err)
			}
			for c := range tab.K {
				at := make([]int, m)
				for n := range at {
					at[n] = n
				}
				sort.SliceStable(at, func(i, j int) bool { return counts[c*m+at[i]] > counts[c*m+at[j]] })
				want := make([]uint64, w)
				for _, n := range at[:keep] {
					want[n/64] |= 1 << (n % 64)
				}
				if !reflect.DeepEqual(masks[p][c*w:(c+1)*w], want) {
					t.Fatalf("layer %d projection %d centroid %d: %x, want %x", l, p, c, masks[p][c*w:(c+1)*w], want)
				}
			}
			freq, _ := f.F32(predictor.FreqName(p, l))
			bitsOf := planted.Masks(p, l)
			for n, v := range freq {
				count := 0
				for i := range planted.Tokens {
					count += int(bitsOf[i*w+n/64] >> (n % 64) & 1)
				}
				if v != float32(float64(count)/float64(planted.Tokens)) {
					t.Fatalf("layer %d projection %d neuron %d: frequency %v, counted %d", l, p, n, v, count)
				}
			}
			tab.Close()
		}
		for i := range planted.Tokens {
			sum += float64(kernels.AndCount(masks[0][int(ids[0][i])*w:][:w], masks[1][int(ids[1][i])*w:][:w]))
		}
		static, _ := f.F32(predictor.StaticName(l))
		pins, _ := f.I32(predictor.PinsName(l))
		all, first := make([]float64, m), make([]float64, m)
		for i := range planted.Parts {
			a, b := calibtest.Importance(cfg, i)
			for n := range m {
				all[n] += a[l*m+n]
				first[n] += b[l*m+n]
			}
		}
		pinned := map[int32]bool{}
		for _, n := range pins {
			pinned[n] = true
		}
		least, most := math.Inf(1), 0.0
		for n := range m {
			if static[n] != float32(all[n]/float64(planted.Tokens)) {
				t.Fatalf("layer %d neuron %d: static %v, want %v", l, n, static[n], all[n]/float64(planted.Tokens))
			}
			if pinned[int32(n)] {
				least = min(least, first[n])
			} else {
				most = max(most, first[n])
			}
		}
		if len(pinned) != Pins || least < most {
			t.Errorf("layer %d: pins %v are not the %d of largest importance at position 0", l, pins, Pins)
		}
	}
	if want := sum / float64(planted.Tokens) / float64(cfg.Layers-1); math.Abs(r.MeanIntersection-want) > 1e-9 {
		t.Errorf("mean intersection %v, want %v", r.MeanIntersection, want)
	}
	if r.CentroidDensity != float64(keep)/float64(m) || r.TokenDensity != 0.4 {
		t.Errorf("report %+v", r)
	}
	// The reader of bundles takes it, whole and from a later layer.
	for first := range cfg.Layers {
		if _, err := predictor.LoadCentroids(out, cfg, first); err != nil {
			t.Errorf("first layer %d: %v", first, err)
		}
	}
	// K_max = M keeps every neuron.
	if _, err := Prune(ctx, e.Work, cfg, m, out); err != nil {
		t.Fatal(err)
	}
	full, err := predictor.LoadCentroids(out, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	for c := range full.Count(0, 1) {
		if n := kernels.Popcount(full.Mask(0, 1, int32(c))); n != m {
			t.Errorf("K_max = M: centroid %d has %d of %d neurons", c, n, m)
		}
	}
	if _, err := Prune(ctx, e.Work, cfg, m+1, out); !errors.Is(err, format.ErrInput) {
		t.Errorf("K_max > M: %v", err)
	}
}

// TestFewTokens asks for a warning that says how much text so many centroids need.
func TestFewTokens(t *testing.T) {
	for k, want := range map[int]bool{28: false, 29: true} { // 900 tokens are 28 times 32
		e := env(t, 0)
		var log bytes.Buffer
		e.Log = &log
		if _, err := Run(context.Background(), e, Options{Config: planted.Config, Centroids: k}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "900 tokens were captured for 29 centroids") && strings.Contains(log.String(), "928 in all"); got != want {
			t.Errorf("%d centroids: %q", k, log.String())
		}
	}
}
