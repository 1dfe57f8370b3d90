package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib/calibtest"
	"neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// example is a small network with uneven tables and a batch for it.
func example(pool *kernels.Pool) (*weights, *batch, *reference, [][4][]float64) {
	s := shape{h: 12, t: 8, k0: 5, heads: []int{7, 3, 1, 9}}
	prior := make([][]int, len(s.heads))
	for c, k := range s.heads {
		prior[c] = make([]int, k)
		for i := range prior[c] {
			prior[c][i] = i * c
		}
	}
	w := s.start(3, prior)
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range w.flat { // away from ones and zeros, so that every term matters
		w.flat[i] += float32(rng.NormFloat64() * 0.2)
	}
	b := newBatch(s, pool, 11)
	b.n = 9
	features := make([][4][]float64, b.n)
	for i := range b.n {
		for j := range b.in {
			for c := range s.h {
				v := float32(rng.NormFloat64() * 3)
				b.in[j][i*s.h+c] = v
				features[i][j] = append(features[i][j], float64(v))
			}
		}
		b.gate0[i] = int32(rng.IntN(s.k0))
		for c, k := range s.heads {
			b.want[c][i] = int32(rng.IntN(k))
		}
	}
	r := &reference{s: s}
	for _, v := range w.flat {
		r.flat = append(r.flat, float64(v))
	}
	return w, b, r, features
}

func wants(b *batch) [][]int32 {
	var out [][]int32
	for _, w := range b.want {
		out = append(out, w[:b.n])
	}
	return out
}

// TestGradient holds the loss against a float64 network written apart, and every element of the gradient against that
// network's finite differences.
func TestGradient(t *testing.T) {
	w, b, r, features := example(nil)
	b.forward(w)
	want := r.loss(features, b.gate0[:b.n], wants(b))
	if got := b.meanLoss(); math.Abs(got-want) > 1e-5*want {
		t.Fatalf("loss %v, want %v", got, want)
	}
	g := b.s.zero()
	fill(g.flat, 1e9) // backward must overwrite
	b.backward(w, g)
	worst := 0.0
	for i := range r.flat {
		const step = 1e-5
		v := r.flat[i]
		r.flat[i] = v + step
		up := r.loss(features, b.gate0[:b.n], wants(b))
		r.flat[i] = v - step
		down := r.loss(features, b.gate0[:b.n], wants(b))
		r.flat[i] = v
		slope := (up - down) / (2 * step)
		allowed := 2e-7 + 1e-5*math.Abs(slope)
		worst = max(worst, math.Abs(float64(g.flat[i])-slope)/allowed)
		if math.Abs(float64(g.flat[i])-slope) > allowed {
			t.Fatalf("parameter %d of %d: gradient %v, finite difference %v", i, len(r.flat), g.flat[i], slope)
		}
	}
	t.Logf("worst gradient error is %.1f %% of what is allowed", 100*worst)
}

// TestInference writes the network and asks runtime/predictor for the same scores: its weights are float16.
func TestInference(t *testing.T) {
	w, b, r, features := example(nil)
	s := b.s
	half := make([]uint16, len(w.flat))
	kernels.F32ToF16(half, w.flat)
	path := filepath.Join(t.TempDir(), File)
	if err := write(path, s, w); err != nil {
		t.Fatal(err)
	}
	for i := range w.vectors { // the reference gets the matrices as they are stored
		r.flat[i] = float64(kernels.F16Value(half[i]))
	}
	cfg := &checkpoint.Config{Layers: 3, Hidden: s.h, Intermediate: 10}
	pool := kernels.NewPool(2)
	defer pool.Close()
	for _, first := range []int{0, 2} {
		p, err := predictor.LoadPredictor(path, cfg, first)
		if err != nil {
			t.Fatal(err)
		}
		from := max(1, first)
		gate, up := make([]int32, 3-from), make([]int32, 3-from)
		for i := range features {
			at := func(j int) []float32 { return b.in[j][i*s.h : (i+1)*s.h] }
			f := &predictor.Features{Embed: at(0), AttnOut: at(1), MLPIn: at(2), Resid: at(3), Gate0: b.gate0[i]}
			p.Predict(pool, f, gate, up)
			want := r.logits(features[i], int(b.gate0[i]))
			for l := from; l < 3; l++ {
				for proj, ids := range [][]int32{gate, up} {
					row, best := want[2*(l-1)+proj], 0
					for c, v := range row {
						if v > row[best] {
							best = c
						}
						if got := p.Logits(proj, l)[c]; math.Abs(float64(got)-v) > 1e-4+1e-4*math.Abs(v) {
							t.Fatalf("token %d layer %d projection %d id %d: score %v, want %v", i, l, proj, c, got, v)
						}
					}
					if int(ids[l-from]) != best {
						t.Errorf("token %d layer %d projection %d: id %d, want %d", i, l, proj, ids[l-from], best)
					}
				}
			}
		}
		if n := testing.AllocsPerRun(20, func() {
			p.Predict(pool, &predictor.Features{Embed: b.in[0][:s.h], AttnOut: b.in[1][:s.h], MLPIn: b.in[2][:s.h], Resid: b.in[3][:s.h]}, gate, up)
		}); n > 0 {
			t.Errorf("%v allocations per token", n)
		}
	}
}

// TestAdamW compares steps with the formulas in float64.
func TestAdamW(t *testing.T) {
	s := shape{h: 4, t: 8, k0: 2, heads: []int{3, 2}}
	rng := rand.New(rand.NewPCG(2, 2))
	w, g, m, v := s.zero(), s.zero(), s.zero(), s.zero()
	n := s.count()
	rw, rm, rv := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range w.flat {
		w.flat[i] = float32(rng.NormFloat64())
		rw[i] = float64(w.flat[i])
	}
	for step := range 5 {
		for i := range g.flat {
			g.flat[i] = float32(rng.NormFloat64() * 0.01)
			x := float64(g.flat[i])
			rm[i] = 0.9*rm[i] + 0.1*x
			rv[i] = 0.98*rv[i] + 0.02*x*x
			if i < w.vectors {
				rw[i] -= 0.01 * 0.05 * rw[i]
			}
			rw[i] -= 0.01 * (rm[i] / (1 - math.Pow(0.9, float64(step+1)))) / (math.Sqrt(rv[i]/(1-math.Pow(0.98, float64(step+1)))) + 1e-8)
		}
		adamW(nil, w, g, m, v, step, 0.01)
	}
	for i := range rw {
		if math.Abs(float64(w.flat[i])-rw[i]) > 1e-5 {
			t.Fatalf("parameter %d of %d (vectors from %d): %v, want %v", i, n, w.vectors, w.flat[i], rw[i])
		}
	}
}

func TestRate(t *testing.T) {
	last := 0.0
	for i := range 5 {
		if r := rate(i, 100); r <= last || r > 1 {
			t.Errorf("step %d: %v after %v, want a rise to 1", i, r, last)
		} else {
			last = r
		}
	}
	for i := 5; i < 100; i++ {
		r := rate(i, 100)
		if r > last || r < lowest-1e-9 {
			t.Errorf("step %d: %v after %v, want a fall to %v", i, r, last, lowest)
		}
		last = r
	}
	if r := rate(0, 1); r != 1 {
		t.Errorf("one step: %v", r)
	}
}

func TestDefaultDim(t *testing.T) {
	mistral := &checkpoint.Config{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32000}
	if n := ModelParams(mistral); n != 7_241_732_096 {
		t.Errorf("Mistral-7B has %d parameters, want 7,241,732,096", n)
	}
	if d := DefaultDim(mistral, 512); d != 512 {
		t.Errorf("Mistral-7B: width %d", d)
	}
	if p := float64(Params(mistral, 512, 512)) / float64(ModelParams(mistral)); p > 0.03 {
		t.Errorf("Mistral-7B: predictor is %.4f of the model", p)
	}
	smol := &checkpoint.Config{Layers: 30, Hidden: 576, Intermediate: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 49152, Tied: true}
	if n := ModelParams(smol); n != 134_515_008 {
		t.Errorf("SmolLM2-135M has %d parameters, want 134,515,008", n)
	}
	d := DefaultDim(smol, 512)
	if p := float64(Params(smol, 512, d)) / float64(ModelParams(smol)); d < 96 || p > 0.04 {
		t.Errorf("SmolLM2-135M: width %d, %.4f of the model", d, p)
	}
	s := shape{h: 576, t: d, k0: 512}
	for range 58 {
		s.heads = append(s.heads, 512)
	}
	if int64(s.count()) != Params(smol, 512, d) {
		t.Errorf("Params says %d, the network has %d", Params(smol, 512, d), s.count())
	}
}

var planted = calibtest.Planted{Config: calibtest.Config(3, 16, 150), Tokens: 1500, Window: 64, Parts: 3, Groups: 8, Noise: 0.02, Seed: 5}

func env(t *testing.T, threads int, p calibtest.Planted, k int) *stage.Env {
	t.Helper()
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads), Seed: 3}
	t.Cleanup(e.Pool.Close)
	if err := calibtest.Capture(context.Background(), e, p); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Run(context.Background(), e, cluster.Options{Config: p.Config, Centroids: k}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRun trains on planted groups, which the features tell apart: held-out accuracy must be near one. One and two
// threads, and a run interrupted between epochs, give the same bytes.
func TestRun(t *testing.T) {
	ctx := context.Background()
	o := Options{Config: planted.Config, Dim: 16, Epochs: 6, Batch: 64, LR: 5e-3}
	a := env(t, 1, planted, 8)
	r, err := Run(ctx, a, o)
	if err != nil {
		t.Fatal(err)
	}
	if top1 := r.Values["top1"].(float64); top1 < 0.95 {
		t.Errorf("held-out top-1 accuracy %v on planted groups", top1)
	}
	if n := r.Values["heldout_tokens"].(int); n != 2*64 {
		t.Errorf("%d tokens held out, want the windows 9 and 19 of 24", n)
	}
	want, err := os.ReadFile(filepath.Join(a.Work, "train", File))
	if err != nil {
		t.Fatal(err)
	}

	b := env(t, 2, planted, 8)
	stop, cancel := context.WithCancel(ctx)
	go func() { // stop as soon as an epoch is saved
		defer cancel()
		for stop.Err() == nil {
			if _, err := os.Stat(filepath.Join(b.Work, "train", stateFile)); err == nil {
				return
			}
		}
	}()
	_, err = Run(stop, b, o)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	interrupted := err != nil
	if _, err := Run(ctx, b, o); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(b.Work, "train", File))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("two threads (interrupted: %v) give other bytes than one", interrupted)
	}
	if _, err := os.Stat(filepath.Join(b.Work, "train", stateFile)); !os.IsNotExist(err) {
		t.Error("the state stays when the stage is done")
	}
}

// TestResumeEpochs asks that a run from a saved epoch ends as an undisturbed one.
func TestResumeEpochs(t *testing.T) {
	e := env(t, 2, planted, 8)
	o := Options{Config: planted.Config, Dim: 16, Epochs: 3, Batch: 64, LR: 5e-3}
	o.defaults()
	whole, parts := t.TempDir(), t.TempDir()
	if _, err := run(context.Background(), e, o, whole, nil); err != nil {
		t.Fatal(err)
	}
	d, err := load(e.Work, o.Config, o.Dim)
	if err != nil {
		t.Fatal(err)
	}
	d.c.Close()
	for i := range o.Epochs {
		// Cancel in the middle of epoch i+1: the epoch before is saved, this one is not.
		ctx := &countdown{Context: context.Background(), n: 22 + 30}
		if i == o.Epochs-1 {
			ctx.n = 1 << 30
		}
		if _, err := run(ctx, e, o, parts, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		p, err := resume(parts, d.shape)
		if err != nil || p == nil || p.Epoch < i+1 {
			t.Fatalf("after run %d: %+v, %v", i, p, err)
		}
	}
	a, _ := os.ReadFile(filepath.Join(whole, File))
	b, _ := os.ReadFile(filepath.Join(parts, File))
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("resumed training gives other bytes")
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

// TestSmallest trains where there is next to nothing: one token, one centroid.
func TestSmallest(t *testing.T) {
	p := calibtest.Planted{Config: calibtest.Config(2, 8, 10), Tokens: 1, Window: 64, Parts: 1, Groups: 1, Seed: 1}
	e := env(t, 2, p, 512)
	r, err := Run(context.Background(), e, Options{Config: p.Config, Epochs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Values["top1"]; ok || r.Values["heldout_tokens"].(int) != 0 {
		t.Errorf("report %v", r.Values)
	}
	pr, err := predictor.LoadPredictor(filepath.Join(e.Work, "train", File), p.Config, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "centroids")
	if _, err := cluster.Prune(context.Background(), e.Work, p.Config, 5, out); err != nil {
		t.Fatal(err)
	}
	c, err := predictor.LoadCentroids(out, p.Config, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := predictor.NewPaper(pr, c); err != nil {
		t.Error(err)
	}
	if _, err := Run(context.Background(), e, Options{Config: calibtest.Config(1, 8, 10)}); !errors.Is(err, format.ErrInput) {
		t.Errorf("one layer: %v", err)
	}
}

func TestDiverged(t *testing.T) {
	s := shape{h: 4, t: 8, k0: 1, heads: []int{2, 2}}
	w := s.zero()
	w.heads[3] = 1e6
	path := filepath.Join(t.TempDir(), File)
	if err := write(path, s, w); !errors.Is(err, format.ErrInput) {
		t.Errorf("a weight beyond float16: %v", err)
	}
	if _, err := tensors.Open(path); err == nil {
		t.Error("a file was written")
	}
}
