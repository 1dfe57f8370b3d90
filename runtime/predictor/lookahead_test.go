package predictor_test

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/predictor/lookaheadtest"
)

// lookaheadConfig has widths that are no multiples of a group of codes.
func lookaheadConfig() *checkpoint.Config {
	return &checkpoint.Config{ModelType: "llama", Layers: 6, Hidden: 72, Intermediate: 150, Heads: 2, KVHeads: 1, HeadDim: 36, Vocab: 64, MaxPositions: 512, RMSEps: 1e-5, BOS: -1}
}

// lookaheadFiles writes factors and pins.
func lookaheadFiles(t *testing.T, cfg *checkpoint.Config, lag int) (path, pins string, want []lookaheadtest.Layer) {
	t.Helper()
	dir := t.TempDir()
	path, pins = filepath.Join(dir, "lookahead.safetensors"), filepath.Join(dir, "centroids")
	want, err := lookaheadtest.Write(path, cfg, lag, 37, 1)
	if err != nil {
		t.Fatal(err)
	}
	var es []tensors.Entry
	for l := 1; l < cfg.Layers; l++ {
		es = append(es, tensors.I32Entry(predictor.PinsName(l), []int{2}, []int32{int32(l), 100}))
	}
	if err := tensors.Write(pins, es, nil); err != nil {
		t.Fatal(err)
	}
	return path, pins, want
}

// energy is ‖down‖²·E[silu²]·E[u²] by the definition, in float64, with the vectors before both factors in 8 bits.
func energy(l *lookaheadtest.Layer, x []float64, eps float64, n int) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	rms := math.Sqrt(sum/float64(len(x)) + eps)
	in := make([]float64, len(x))
	for j, v := range x {
		in[j] = l.Scale[j] * v / rms
	}
	in = predictor.Round8(in)
	var y [2]float64
	for p := range y {
		q := &l.Proj[p]
		y[p] = q.Offset[n]
		z := make([]float64, len(q.In))
		for i, row := range q.In {
			for j, w := range row {
				z[i] += w * in[j]
			}
		}
		for i, v := range predictor.Round8(z) {
			y[p] += q.Out[n][i] * v
		}
	}
	silu2 := func(g float64) float64 {
		s := g / (1 + math.Exp(-g))
		return s * s
	}
	g, u, d := y[0], y[1], math.Sqrt(3)*l.Proj[0].Dev[n]
	e := 2./3*silu2(g) + silu2(g+d)/6 + silu2(g-d)/6
	return l.Down[n] * l.Down[n] * e * (u*u + l.Proj[1].Dev[n]*l.Proj[1].Dev[n])
}

// TestLookaheadScores compares every layer's scores with the formula, at every level of the kernels, for sources at the
// layer's own input up to far ahead.
func TestLookaheadScores(t *testing.T) {
	cfg := lookaheadConfig()
	for _, level := range kernels.Levels() {
		restore := kernels.SetLevel(level)
		for _, lag := range []int{1, 2, 3, 6} {
			path, pins, want := lookaheadFiles(t, cfg, lag)
			const first = 2
			s, err := predictor.LoadLookahead(path, pins, cfg, first)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, uint64(lag)))
			x, x64, dst := make([]float32, cfg.Hidden), make([]float64, cfg.Hidden), make([]float32, cfg.Intermediate)
			var seen []int
			for site := range 2 * cfg.Layers {
				for i := range x {
					x[i] = float32(2 * r.NormFloat64())
					x64[i] = float64(x[i])
				}
				for _, l := range s.Look(nil, site, x) {
					if site != want[l].Source {
						t.Errorf("lag %d: layer %d is named at site %d, want %d", lag, l, site, want[l].Source)
					}
					seen = append(seen, l)
					s.Scores(l, dst)
					for n, got := range dst {
						e := energy(&want[l], x64, cfg.RMSEps, n)
						// the straight pieces of the logarithm are at most 0.0597 below it
						if d := float64(got) - math.Log(e); d < -0.0597-2e-3 || d > 2e-3 {
							if math.Abs(d) < 1 && e < 1e-9 {
								continue // what is left of two near-equal sums
							}
							t.Fatalf("%s, lag %d, layer %d, neuron %d: score %v, ln energy %v", level, lag, l, n, got, math.Log(e))
						}
					}
					if !slices.Equal(s.Pins(l), []int32{int32(l), 100}) {
						t.Errorf("layer %d has pins %v", l, s.Pins(l))
					}
				}
			}
			if !slices.Equal(seen, []int{2, 3, 4, 5}) {
				t.Errorf("lag %d: layers %v were named", lag, seen)
			}
		}
		restore()
	}
}

// TestLookaheadOrder holds that the logarithm keeps the order of energies.
func TestLookaheadOrder(t *testing.T) {
	last := math.Inf(-1)
	for e := 1e-30; e < 1e30; e *= 1.001 {
		got := float64(predictor.LogEnergy(float32(e)))
		if got < last {
			t.Fatalf("ln %v gives %v, less than before", e, got)
		}
		last = got
	}
}

// TestLookaheadThreads asks for the same bits from any number of threads, and for no allocation.
func TestLookaheadThreads(t *testing.T) {
	cfg := lookaheadConfig()
	path, pins, _ := lookaheadFiles(t, cfg, 2)
	x := make([]float32, cfg.Hidden)
	r := rand.New(rand.NewPCG(5, 5))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	var want []float32
	for _, threads := range []int{1, 2, 3} {
		pool := kernels.NewPool(threads)
		s, err := predictor.LoadLookahead(path, pins, cfg, 1)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]float32, cfg.Intermediate)
		look := func() {
			for _, l := range s.Look(pool, 5, x) {
				s.Scores(l, dst)
			}
		}
		look()
		if want == nil {
			want = slices.Clone(dst)
		}
		if !slices.Equal(dst, want) {
			t.Errorf("%d threads give other scores", threads)
		}
		if n := testing.AllocsPerRun(20, look); n != 0 {
			t.Errorf("%d threads: %v allocations per look", threads, n)
		}
		pool.Close()
	}
}

// TestLookaheadDamage bends one tensor after the other; loading must refuse and name it.
func TestLookaheadDamage(t *testing.T) {
	cfg := lookaheadConfig()
	cfg.Layers = 2
	path, pins, _ := lookaheadFiles(t, cfg, 2)
	f, err := tensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	type tensor struct {
		dtype string
		shape []int
		data  []byte
	}
	load := func() map[string]*tensor {
		out := map[string]*tensor{}
		for _, n := range f.Names() {
			in, _ := f.Info(n)
			b, err := f.Bytes(n)
			if err != nil {
				t.Fatal(err)
			}
			out[n] = &tensor{in.DType, slices.Clone(in.Shape), slices.Clone(b)}
		}
		return out
	}
	bent := filepath.Join(t.TempDir(), "bent.safetensors")
	try := func(what, name string, bend func(all map[string]*tensor)) {
		t.Helper()
		all := load()
		bend(all)
		var es []tensors.Entry
		for _, n := range slices.Sorted(maps.Keys(all)) {
			x := all[n]
			es = append(es, tensors.Entry{Name: n, DType: x.dtype, Shape: x.shape, Write: writer(x.data)})
		}
		if err := tensors.Write(bent, es, nil); err != nil {
			t.Fatal(err)
		}
		_, err := predictor.LoadLookahead(bent, pins, cfg, 1)
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s of %s: %v", what, name, err)
		}
		os.Remove(bent)
	}
	for name, x := range load() {
		try("absence", name, func(all map[string]*tensor) { delete(all, name) })
		blamed := name
		if strings.HasPrefix(name, "in.") {
			blamed = "out." + strings.TrimSuffix(strings.TrimPrefix(name, "in."), ".scales")
		}
		try("a row less", blamed, func(all map[string]*tensor) {
			cut := func(y *tensor, rows int) {
				y.data = y.data[:len(y.data)/y.shape[0]*rows]
				y.shape[0] = rows
			}
			if strings.HasPrefix(name, "in.") { // another rank: of one group, where out has two
				cut(all[strings.TrimSuffix(name, ".scales")], 32)
				cut(all[strings.TrimSuffix(name, ".scales")+".scales"], 32)
				return
			}
			cut(all[name], all[name].shape[0]-1)
		})
		switch x.dtype {
		case "F16":
			try("infinity", name, func(all map[string]*tensor) { binary.LittleEndian.PutUint16(all[name].data, 0x7c00) })
		case "F32":
			try("NaN", name, func(all map[string]*tensor) { binary.LittleEndian.PutUint32(all[name].data, 0x7fc00000) })
		}
	}
	for _, site := range []uint32{3, 99, 1 << 31} {
		try("site too late", predictor.SourceName, func(all map[string]*tensor) {
			binary.LittleEndian.PutUint32(all[predictor.SourceName].data[4:], site)
		})
	}
}

func writer(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}
