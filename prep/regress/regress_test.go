package regress

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

	"gonum.org/v1/gonum/mat"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/moments"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// sample is made-up calibration data: x (T, H) with a mean, correlated elements, one that is constant and one that is
// large; t (T, H) partly a linear function of x; w (M, H).
type sample struct {
	n, h, m int
	x, t    [][]float64
	w       []float32
}

func newSample(n, h, m int) *sample {
	r := rand.New(rand.NewPCG(11, 13))
	s := &sample{n: n, h: h, m: m, w: make([]float32, m*h)}
	mix, lin := make([]float64, h*h), make([]float64, h*h)
	for i := range mix {
		mix[i], lin[i] = r.NormFloat64()/math.Sqrt(float64(h)), r.NormFloat64()/math.Sqrt(float64(h))
	}
	for i := range s.w {
		s.w[i] = float32(r.NormFloat64())
	}
	for range n {
		z, x, t := make([]float64, h), make([]float64, h), make([]float64, h)
		for i := range z {
			z[i] = r.NormFloat64() * math.Exp(-float64(i)/8)
		}
		for i := range x {
			x[i] = 0.5 + 0.05*r.NormFloat64()
			for j := range z {
				x[i] += mix[i*h+j] * z[j]
			}
		}
		x[3], x[5] = 0.25, 40*x[5]
		for i := range t {
			t[i] = 0.3 + 0.3*r.NormFloat64()
			for j := range x {
				if j != 5 {
					t[i] += lin[i*h+j] * x[j]
				}
			}
		}
		s.x, s.t = append(s.x, x), append(s.t, t)
	}
	return s
}

// moments are the sums ÷ tokens.
func (s *sample) moments() (gx, mx, gt, mt, cross []float64) {
	h := s.h
	gx, gt, cross = make([]float64, h*h), make([]float64, h*h), make([]float64, h*h)
	mx, mt = make([]float64, h), make([]float64, h)
	for k := range s.x {
		for i := range h {
			mx[i] += s.x[k][i] / float64(s.n)
			mt[i] += s.t[k][i] / float64(s.n)
			for j := range h {
				gx[i*h+j] += s.x[k][i] * s.x[k][j] / float64(s.n)
				gt[i*h+j] += s.t[k][i] * s.t[k][j] / float64(s.n)
				cross[i*h+j] += s.x[k][i] * s.t[k][j] / float64(s.n)
			}
		}
	}
	return
}

// outputs are y = W·t of a token.
func (s *sample) outputs(k int) []float64 {
	y := make([]float64, s.m)
	for i := range y {
		for j, v := range s.t[k] {
			y[i] += float64(s.w[i*s.h+j]) * v
		}
	}
	return y
}

// direct is ridge regression from the samples themselves: standardised x, centred y, coefficients (H, M).
func (s *sample) direct(t *testing.T) (z *mat.Dense, y *mat.Dense, coef *mat.Dense) {
	z, y = mat.NewDense(s.n, s.h, nil), mat.NewDense(s.n, s.m, nil)
	for k := range s.x {
		y.SetRow(k, s.outputs(k))
		z.SetRow(k, s.x[k])
	}
	for _, a := range []*mat.Dense{z, y} {
		_, c := a.Dims()
		for j := range c {
			mean, square := 0.0, 0.0
			for k := range s.n {
				mean += a.At(k, j) / float64(s.n)
			}
			for k := range s.n {
				d := a.At(k, j) - mean
				square += d * d / float64(s.n)
			}
			for k := range s.n {
				v := a.At(k, j) - mean
				if a == z {
					if square < 1e-18 {
						v = 0
					} else {
						v /= math.Sqrt(square)
					}
				}
				a.Set(k, j, v)
			}
		}
	}
	var g, c mat.Dense
	g.Mul(z.T(), z)
	g.Scale(1/float64(s.n), &g)
	for i := range s.h {
		g.Set(i, i, g.At(i, i)+leastRidge)
	}
	c.Mul(z.T(), y)
	c.Scale(1/float64(s.n), &c)
	coef = new(mat.Dense)
	if err := coef.Solve(&g, &c); err != nil {
		t.Fatal(err)
	}
	return z, y, coef
}

// unrounded keeps the values.
type unrounded struct{ x []float64 }

func (u unrounded) Values() []float64 { return u.x }

func exactly(x []float64, rows, cols int) rounded { return unrounded{slices.Clone(x)} }

// predict is ŷ − its mean, for the standardised z.
func predict(z *mat.Dense, f *factors) *mat.Dense {
	r := f.rank
	_, h := z.Dims()
	in, out := mat.NewDense(r, h, f.in.Values()), mat.NewDense(len(f.offset), r, f.out.Values())
	var a, y mat.Dense
	a.Mul(z, in.T())
	y.Mul(&a, out.T())
	return &y
}

func diff(a, b *mat.Dense) (worst, size float64) {
	r, c := a.Dims()
	for i := range r {
		for j := range c {
			worst, size = max(worst, math.Abs(a.At(i, j)-b.At(i, j))), max(size, math.Abs(b.At(i, j)))
		}
	}
	return
}

// TestAgainstSamples solves a small problem from its moments and compares with regressions on the samples: of full rank
// with ridge regression, of low rank with the singular value decomposition of the weighted predictions; residuals, of
// rounded factors too, with those counted sample by sample.
func TestAgainstSamples(t *testing.T) {
	s := newSample(400, 24, 40)
	gx, mx, gt, mt, cross := s.moments()
	p, err := newProblem(nil, s.h, gx, mx, gt, mt, cross)
	if err != nil {
		t.Fatal(err)
	}
	if p.invDev[3] != 0 {
		t.Error("a constant element is used")
	}
	o := p.output(s.w)
	z, y, coef := s.direct(t)
	weight := make([]float64, s.m)
	for i := range weight {
		weight[i] = 0.5 + float64(i%7)
	}
	for i := range weight {
		v := 0.0
		for k := range s.n {
			v += y.At(k, i) * y.At(k, i) / float64(s.n)
		}
		if math.Abs(o.variance[i]-v) > 1e-5*v {
			t.Errorf("neuron %d: variance %v, want %v", i, o.variance[i], v)
		}
	}
	var full mat.Dense
	full.Mul(z, coef)

	f, err := p.solve(o, weight, s.h, exactly)
	if err != nil {
		t.Fatal(err)
	}
	if worst, size := diff(predict(z, f), &full); worst > 1e-4*size {
		t.Errorf("full rank is off ridge regression by %v of %v", worst, size)
	}

	// The best approximation of the whitened weighted map: coefᵀ·L weighted, by SVD.
	var g mat.Dense
	g.Mul(z.T(), z)
	sym := mat.NewSymDense(s.h, nil)
	for i := range s.h {
		for j := range i + 1 {
			sym.SetSym(i, j, g.At(i, j)/float64(s.n))
		}
		sym.SetSym(i, i, sym.At(i, i)+leastRidge)
	}
	var chol mat.Cholesky
	if !chol.Factorize(sym) {
		t.Fatal("not positive definite")
	}
	var l mat.TriDense
	chol.LTo(&l)
	var white mat.Dense // (H, M) Lᵀ·coef·D
	white.Mul(l.T(), coef)
	for i := range s.h {
		for j := range s.m {
			white.Set(i, j, white.At(i, j)*weight[j])
		}
	}
	var svd mat.SVD
	if !svd.Factorize(&white, mat.SVDThin) {
		t.Fatal("no decomposition")
	}
	for _, rank := range []int{1, 5, 12} {
		f, err := p.solve(o, weight, rank, exactly)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range svd.Values(nil) {
			if math.Abs(f.spectrum[i]-v*v) > 1e-4*f.spectrum[0] {
				t.Errorf("dimension %d explains %v, want %v", i, f.spectrum[i], v*v)
			}
		}
		var u, v mat.Dense
		svd.UTo(&u)
		svd.VTo(&v)
		low := mat.NewDense(s.h, s.m, nil)
		for k := range rank {
			for i := range s.h {
				for j := range s.m {
					low.Set(i, j, low.At(i, j)+svd.Values(nil)[k]*u.At(i, k)*v.At(j, k)/weight[j])
				}
			}
		}
		var b, want mat.Dense
		if err := b.Solve(l.T(), low); err != nil {
			t.Fatal(err)
		}
		want.Mul(z, &b)
		if worst, size := diff(predict(z, f), &want); worst > 1e-3*size {
			t.Errorf("rank %d is off by %v of %v", rank, worst, size)
		}
	}

	for name, q := range map[string]rounding{"exact": exactly, "rounded": quantise} {
		for _, rank := range []int{1, 8, 20} {
			f, err := p.solve(o, weight, rank, q)
			if err != nil {
				t.Fatal(err)
			}
			got := predict(z, f)
			for i := range s.m {
				miss := 0.0
				for k := range s.n {
					d := y.At(k, i) - got.At(k, i)
					miss += d * d / float64(s.n)
				}
				if math.Abs(f.residual[i]-miss) > 1e-4*o.variance[i] {
					t.Errorf("%s rank %d neuron %d: residual %v, want %v of %v", name, rank, i, f.residual[i], miss, o.variance[i])
				}
				// with the offset, the prediction from x itself has y's mean
				mean := f.offset[i]
				in, out := f.in.Values(), f.out.Values()
				for a := range rank {
					zz := 0.0
					for j := range s.h {
						zz += in[a*s.h+j] * mx[j] * p.invDev[j]
					}
					mean += out[i*rank+a] * zz
				}
				if math.Abs(mean-o.mean[i]) > 1e-9*(1+math.Abs(o.mean[i])) {
					t.Errorf("%s: mean %v, want %v", name, mean, o.mean[i])
				}
			}
		}
	}
}

const tiny = "../../pipelines/tiny/"

func prepared(t *testing.T, threads int) (*checkpoint.Checkpoint, *stage.Env) {
	t.Helper()
	c, err := checkpoint.Open(tiny + "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	if _, err := moments.Run(context.Background(), e, moments.Options{Checkpoint: c, Texts: []string{tiny + "calibration.txt"}, Tokens: 1024, Window: 128}); err != nil {
		t.Fatal(err)
	}
	return c, e
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

// TestStage asks for the same bytes with one and two threads and after an interruption that left some layers, for a file
// that the selector takes, and for ranks that fall with the dense prefix.
func TestStage(t *testing.T) {
	c, e := prepared(t, 2)
	old := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(old)
	o := Options{Checkpoint: c, Rank: 64, Dense: 3}
	r, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(e.Work, Name, File)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Values["bytes"].(int64); int64(len(want)) < n || int64(len(want)) > n+16<<10 {
		t.Errorf("report says %d bytes, the file has %d", n, len(want))
	}
	for i, v := range r.Values["left_gate"].([]float64) {
		if !(v > 0 && v < 1) {
			t.Errorf("layer %d leaves %v of gate", i+1, v)
		}
	}
	runtime.GOMAXPROCS(1)
	_, e1 := prepared(t, 1)
	kept := 0
	for n := 4; kept == 0; n++ {
		if _, err := Run(&countdown{context.Background(), n}, e1, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted run: %v", err)
		}
		left, _ := filepath.Glob(filepath.Join(e1.Work, Name, ".layer-*"))
		kept = len(left)
	}
	if _, err := Run(context.Background(), e1, o); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(e1.Work, Name, File))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("other bytes with another thread count")
	}
	if r, err := Run(context.Background(), e1, o); err != nil || !r.Skipped {
		t.Errorf("third run: %v, %v", r.Skipped, err)
	}
}

func TestRefused(t *testing.T) {
	c, e := prepared(t, 1)
	for name, x := range map[string]struct {
		o    Options
		want string
	}{
		"lag that has no moments": {Options{Lag: 7}, "lookaheads"},
		"rank":                    {Options{Rank: 129}, "rank 129"},
		"dense":                   {Options{Dense: 7}, "7 layers"},
		"lag":                     {Options{Lag: -1}, "lag -1"},
	} {
		x.o.Checkpoint = c
		if _, err := Run(context.Background(), e, x.o); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.Memory = 1 << 20
	if _, err := Run(context.Background(), e, Options{Checkpoint: c}); !errors.Is(err, format.ErrFit) {
		t.Errorf("memory: %v", err)
	}
	empty := &stage.Env{Work: t.TempDir()}
	if _, err := Run(context.Background(), empty, Options{Checkpoint: c}); !errors.Is(err, format.ErrInput) || !strings.Contains(format.HintOf(err), "npprep moments") {
		t.Errorf("without moments: %v", err)
	}
}

// TestRamp holds the sources of a ramp against its definition, and its factors against those that a lag of the same
// length gives: a ramp only chooses among lags.
func TestRamp(t *testing.T) {
	c, e := prepared(t, 2)
	o := Options{Checkpoint: c, Rank: 32, Dense: 3, Ramp: 2}
	if _, err := Run(context.Background(), e, o); !errors.Is(err, format.ErrInput) || !strings.Contains(format.HintOf(err), "--ramp") {
		t.Errorf("moments without the ramp's sources: %v", err)
	}
	long := o
	long.Ramp = c.Config.Layers - o.Dense + 1
	if err := long.Check(); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "behind the dense prefix of 3") {
		t.Errorf("a ramp of more layers than there are: %v", err)
	}
	extra, err := o.Extra()
	if err != nil || len(extra) != 2 {
		t.Fatalf("%v, %v", extra, err)
	}
	run := func(extra []calib.Pair, lags []int, o Options) *tensors.File {
		t.Helper()
		e := &stage.Env{Work: t.TempDir(), Pool: e.Pool}
		m := moments.Options{Checkpoint: c, Texts: []string{tiny + "calibration.txt"}, Tokens: 1024, Window: 128, Lags: lags, Extra: extra}
		if _, err := moments.Run(context.Background(), e, m); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), e, o); err != nil {
			t.Fatal(err)
		}
		f, err := tensors.Open(filepath.Join(e.Work, Name, File))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ramp := run(extra, []int{2}, o)
	source, err := ramp.I32(predictor.SourceName)
	if err != nil {
		t.Fatal(err)
	}
	// six layers, lag 2: layer 3 two layers earlier, layer 4 one
	if want := []int32{-1, 1, 3, 1, 5, 9}; !slices.Equal(source, want) {
		t.Errorf("sources %v, want %v", source, want)
	}
	for l, lag := range map[int]int{2: 2, 3: 6, 4: 4, 5: 2} {
		alone := run(nil, []int{lag}, Options{Checkpoint: c, Rank: 32, Dense: 2, Lag: lag})
		for _, name := range []string{predictor.InName(0, l), predictor.OutName(1, l), predictor.ScaleName(l)} {
			a, errA := ramp.Bytes(name)
			b, errB := alone.Bytes(name)
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Errorf("%s is not that of lag %d: %v, %v", name, lag, errA, errB)
			}
		}
	}
	if _, err := Run(context.Background(), e, Options{Checkpoint: c, Ramp: 32}); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "ramp of 32") {
		t.Errorf("a ramp too long: %v", err)
	}
}

func TestRanks(t *testing.T) {
	small := &checkpoint.Config{Layers: 30, Hidden: 576, Intermediate: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 49152, Tied: true}
	large := &checkpoint.Config{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32000}
	for _, x := range []struct {
		c     *checkpoint.Config
		dense int
		share float64
	}{{small, 10, 0.04}, {small, 18, 0.04}, {small, 1, 0.04}, {large, 10, 0.03}, {large, 1, 0.03}} {
		r := ranks(x.c, x.dense, 0)
		n := float64(fileBytes(x.c, r))
		limit := x.share * float64(modelBytes(x.c))
		if n > limit {
			t.Errorf("%d layers, d = %d: factors take %v of at most %v", x.c.Layers, x.dense, n, limit)
		}
		last := r[len(r)-1]
		if last < 64 || last%32 != 0 || last > maxRank {
			t.Errorf("rank %d", last)
		}
		if x.dense > 1 && (r[0] != 32 || r[x.dense-2] != 32 || r[x.dense-1] != last) {
			t.Errorf("d = %d: ranks %v", x.dense, r)
		}
		up := ranks(x.c, x.dense, last+32)
		if last < maxRank && float64(fileBytes(x.c, up)) <= limit {
			t.Errorf("d = %d: rank %d would fit", x.dense, last+32)
		}
	}
}
