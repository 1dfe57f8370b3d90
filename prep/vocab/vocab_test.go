package vocab

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/capture"
	masks "neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/threshold"
	"neuroprefetcher/runtime/predictor"
)

const tiny = "../../pipelines/tiny/"

// prepared runs the stages before this one.
func prepared(t *testing.T, threads int) (Options, *stage.Env) {
	t.Helper()
	c, err := checkpoint.Open(tiny + "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads), Seed: 1}
	t.Cleanup(e.Pool.Close)
	texts, ctx := []string{tiny + "calibration.txt"}, context.Background()
	if _, err := threshold.Run(ctx, e, threshold.Options{Checkpoint: c, Texts: texts, Tokens: 384, Window: 64}); err != nil {
		t.Fatal(err)
	}
	if _, err := capture.Run(ctx, e, capture.Options{Checkpoint: c, Texts: texts, Tokens: 384, Window: 64}); err != nil {
		t.Fatal(err)
	}
	if _, err := masks.Run(ctx, e, masks.Options{Config: c.Config, Centroids: 4}); err != nil {
		t.Fatal(err)
	}
	return Options{Checkpoint: c, Texts: texts, Tokens: 256, Paper: true, Joint: true, Centroids: 8, Rank: 8, Dense: 4}, e
}

// TestStage holds the expectations of a layer against sums in float64 over a forward pass of its own, and asks for the
// same bytes with one thread.
func TestStage(t *testing.T) {
	o, e := prepared(t, 2)
	ctx, cfg := context.Background(), o.Checkpoint.Config
	if _, err := Run(ctx, e, o); err != nil {
		t.Fatal(err)
	}
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		t.Fatal(err)
	}
	ws := c.Spread(o.Tokens)
	if calib.Tokens(ws) != 256 || ws[3].Start < 256 {
		t.Fatalf("windows %v", ws)
	}
	m, l := cfg.Intermediate, 5
	walker, err := forward.New(o.Checkpoint, e.Pool, 64, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, a := walker.Begin(txt.Tokens, ws), &taken{m: m}
	if err := a.readIDs(e.Work, c, ws, l); err != nil {
		t.Fatal(err)
	}
	var act [2][]float64
	for i := 0; i <= l; i++ {
		taps := &forward.Taps{}
		if i == l {
			act[0], act[1] = make([]float64, 256*m), make([]float64, 256*m)
			taps.MLP = func(row, n, lo, hi int, gate, up []float32) {
				for i := range n {
					for j := lo; j < hi; j++ {
						x := float64(gate[i*(hi-lo)+j-lo])
						act[0][(row+i)*m+j], act[1][(row+i)*m+j] = x/(1+math.Exp(-x)), float64(up[i*(hi-lo)+j-lo])
					}
				}
			}
		}
		if err := g.Layer(i, taps); err != nil {
			t.Fatal(err)
		}
	}
	// what the stage takes of the same layer
	g = walker.Begin(txt.Tokens, ws)
	a.begin = make([]bool, 256)
	for i := 0; i < 256; i += 64 {
		a.begin[i] = true
	}
	_, rows, err := walker.Load(l)
	if err != nil {
		t.Fatal(err)
	}
	a.down = make([]float32, rows.N)
	forward.DownNorms(e.Pool, a.down, rows, cfg.Hidden)
	a.imp = &importances{x: make([]uint16, 256*m), n: 256, m: m}
	for i := 0; i <= l; i++ {
		taps := &forward.Taps{}
		if i == l {
			taps = a.taps(e.Pool)
		}
		if err := g.Layer(i, taps); err != nil {
			t.Fatal(err)
		}
	}
	for p := range predictor.Projections {
		want, n := make([]float64, len(a.sums[p])), make([]int32, len(a.count[p]))
		for i, id := range a.ids[p] {
			if i%64 == 0 {
				continue
			}
			n[id]++
			for j := range m {
				v := act[p][i*m+j]
				want[int(id)*m+j] += v * v
			}
		}
		if !slices.Equal(n, a.count[p]) {
			t.Fatalf("counts %v, want %v", a.count[p], n)
		}
		for i, v := range a.sums[p] {
			if math.Abs(float64(v)-want[i]) > 1e-4*math.Abs(want[i])+1e-9 {
				t.Fatalf("projection %d, element %d: %v, want %v", p, i, v, want[i])
			}
		}
	}
	for _, i := range []int{1, 100, 255} {
		norm := 0.0
		for j := range m {
			v := act[0][i*m+j] * act[1][i*m+j] * float64(a.down[j])
			norm += v * v
		}
		for j, b := range a.imp.row(i) {
			want := math.Abs(act[0][i*m+j]*act[1][i*m+j]) * float64(a.down[j]) / math.Sqrt(norm)
			if got := float64(kernels.F16Value(b)); math.Abs(got-want) > 1e-3*want+1e-6 {
				t.Fatalf("token %d, neuron %d: importance %v, want %v", i, j, got, want)
			}
		}
	}
	if slices.ContainsFunc(a.imp.row(64), func(v uint16) bool { return v != 0 }) {
		t.Error("position 0 counts")
	}
	ids, err := calib.OpenJointIDs(e.Work, c)
	if err != nil || ids.First != 4 || ids.K != 8 || len(ids.IDs) != 2 || len(ids.IDs[0]) != 256 {
		t.Fatalf("%+v, %v", ids, err)
	}

	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	o1, e1 := prepared(t, 1)
	if _, err := Run(ctx, e1, o1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{PaperFile, JointFile, calib.JointIDsFile} {
		a, errA := os.ReadFile(filepath.Join(e.Work, Name, name))
		b, errB := os.ReadFile(filepath.Join(e1.Work, Name, name))
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s: other bytes with one thread (%v, %v)", name, errA, errB)
		}
	}
	for what, change := range map[string]func(*Options){
		"centroids want at least": func(o *Options) { o.Centroids = 1000 },
		"not the text":            func(o *Options) { o.Texts = []string{tiny + "heldout.txt"} },
		"dense prefix":            func(o *Options) { o.Dense = 6 },
	} {
		x := o1
		change(&x)
		if _, err := Run(ctx, e1, x); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// planted are tokens of k kinds, each important in neurons of its own but for noise.
func planted(n, m, k int, noise float64) (*importances, []int32) {
	rng := rand.New(rand.NewPCG(7, 7))
	s, kind := &importances{x: make([]uint16, n*m), n: n, m: m}, make([]int32, n)
	set := make([][]float64, k)
	for c := range set {
		for range m {
			set[c] = append(set[c], math.Exp(2*rng.NormFloat64()))
		}
	}
	for i := range n {
		kind[i] = int32(i % k)
		v, sum := make([]float32, m), 0.0
		for j := range v {
			v[j] = float32(set[kind[i]][j] * math.Exp(noise*rng.NormFloat64()))
			sum += float64(v[j]) * float64(v[j])
		}
		for j := range v {
			v[j] /= float32(math.Sqrt(sum))
		}
		kernels.F32ToF16(s.row(i), v)
	}
	return s, kind
}

// TestCluster asks for the planted kinds, for assignments that are the best by plain sums, and for vocabularies of
// degenerate tokens.
func TestCluster(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	const n, m, k = 600, 100, 4
	s, kind := planted(n, m, k, 0.3)
	v, err := cluster(context.Background(), pool, s, 12, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	of := map[int32]int32{} // with more centroids than kinds, each belongs to one kind
	for i, id := range v.ids {
		if have, ok := of[id]; ok && have != kind[i] {
			t.Fatalf("centroid %d has kinds %d and %d", id, have, kind[i])
		}
		of[id] = kind[i]
		best, most := -1, -1.0
		for c := range v.k {
			sum, size := 0.0, 0
			for j, b := range s.row(i) {
				if v.sets[c*m+j] == 1 {
					size++
					sum += float64(kernels.F16Value(b))
				}
			}
			if size != m/2 {
				t.Fatalf("set %d has %d neurons", c, size)
			}
			if sum > most+1e-4 {
				best, most = c, sum
			}
		}
		got := 0.0
		for j, b := range s.row(i) {
			got += float64(v.sets[int(id)*m+j]) * float64(kernels.F16Value(b))
		}
		if got < most-1e-3 {
			t.Fatalf("token %d has centroid %d, which covers %v; %d covers %v", i, id, got, best, most)
		}
	}
	same := &importances{x: make([]uint16, 50*m), n: 50, m: m}
	for i := range 50 {
		copy(same.row(i), s.row(0))
	}
	if v, err = cluster(context.Background(), pool, same, 5, rand.New(rand.NewPCG(1, 1))); err != nil || slices.Max(v.ids) != 0 {
		t.Errorf("tokens that are all the same: %v", err)
	}
	one := &importances{x: same.x[:m], n: 1, m: m}
	if v, err = cluster(context.Background(), pool, one, 1, rand.New(rand.NewPCG(1, 1))); err != nil || v.ids[0] != 0 {
		t.Errorf("one token: %v", err)
	}
	if _, err = cluster(context.Background(), pool, one, 2, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "there are 1") {
		t.Errorf("one token for two centroids: %v", err)
	}
	zero := &importances{x: make([]uint16, 9*m), n: 9, m: m}
	if _, err = cluster(context.Background(), pool, zero, 1, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, format.ErrInput) {
		t.Errorf("tokens without activations: %v", err)
	}
}

// TestFitRows: rows of low rank come back but for rounding, a rank of all centroids leaves rounding alone, and less rank
// leaves more.
func TestFitRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const k, m = 40, 150
	x, count := make([]float64, k*m), make([]int32, k)
	for c := range k {
		count[c] = int32(rng.IntN(200))
		a, b := rng.NormFloat64(), rng.NormFloat64()
		for j := range m {
			x[c*m+j] = 5 + math.Sin(float64(j))*a + math.Cos(float64(3*j))*b + 0.05*rng.NormFloat64()
		}
	}
	check := func(r int, most float64) float64 {
		t.Helper()
		f, err := fitRows(x, count, m, r)
		if err != nil {
			t.Fatal(err)
		}
		mix, out := f.mix.Values(), f.out.Values()
		miss, all := 0.0, 0.0
		for c := range k {
			for j := range m {
				v := f.base[j]
				for i := range r {
					v += out[j*r+i] * mix[i*k+c]
				}
				miss, all = miss+(v-x[c*m+j])*(v-x[c*m+j]), all+(x[c*m+j]-f.base[j])*(x[c*m+j]-f.base[j])
			}
		}
		if miss > most*all || f.left > 2*most {
			t.Errorf("rank %d leaves %v, says %v", r, miss/all, f.left)
		}
		return miss
	}
	if a, b := check(1, 0.9), check(2, 0.02); a < 2*b {
		t.Errorf("rank 1 leaves %v, rank 2 %v", a, b)
	}
	for i := range x {
		x[i] = 3 // all centroids the same
	}
	if f, err := fitRows(x, count, m, 2); err != nil || math.Abs(f.base[7]-3) > 1e-9 {
		t.Errorf("constant rows: %v", err)
	}
}

// TestExpectations: means, drawn towards the mean of all by few members, and finite logarithms.
func TestExpectations(t *testing.T) {
	got := expectations([]float32{8, 0, 0, 0}, []int32{4, 0}, 2)
	for i, want := range []float64{(8 + 4*2) / 8., 0, 2, 0} {
		if got[i] != want {
			t.Errorf("%v", got)
		}
	}
	for _, v := range append(logarithms(got), logarithms(make([]float64, 3))...) {
		if math.IsInf(v, 0) || math.IsNaN(v) {
			t.Error("a logarithm is not finite")
		}
	}
}
