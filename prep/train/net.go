package train

import (
	"math"
	"math/rand/v2"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// shape is what the network's size follows from.
type shape struct {
	h, t, k0 int
	heads    []int    // K of each table, layer by layer
	tables   []string // names of a layer's tables; nil: gate and up
	first    int      // layer of the first head; 0: layer 1
}

// names are the tables' of a layer.
func (s shape) names() []string {
	if s.tables == nil {
		return predictor.Projections[:]
	}
	return s.tables
}

// head is the name of table c's.
func (s shape) head(c int) string {
	n := s.names()
	return predictor.HeadOf(n[c%len(n)], max(1, s.first)+c/len(n))
}

func (s shape) inner() int { return predictor.Expand * s.t }

// rows is the sum of the tables' centroids: all heads are one matrix (rows, T).
func (s shape) rows() int {
	n := 0
	for _, k := range s.heads {
		n += k
	}
	return n
}

// weights are views into one flat slice, in the order of the fields; parameters, gradients and moments share it.
type weights struct {
	flat   []float32
	proj   [4][]float32 // (T, H)
	gate0  []float32    // (K0, T)
	w1, w2 [predictor.Blocks][]float32
	heads  []float32 // (rows, T)
	// vectors follow, which do not decay
	norm    [predictor.Blocks][]float32 // (T)
	final   []float32                   // (T)
	bias    []float32                   // (rows)
	vectors int                         // where they begin in flat
}

func (s shape) count() int {
	return 4*s.t*s.h + s.k0*s.t + predictor.Blocks*(2*s.inner()*s.t+s.t) + s.rows()*s.t + s.t + s.rows()
}

// over lays the views over a slice of count() elements.
func (s shape) over(flat []float32) *weights {
	w := &weights{flat: flat}
	at := 0
	next := func(n int) []float32 {
		at += n
		return flat[at-n : at : at]
	}
	for j := range w.proj {
		w.proj[j] = next(s.t * s.h)
	}
	w.gate0 = next(s.k0 * s.t)
	for i := range w.w1 {
		w.w1[i], w.w2[i] = next(s.inner()*s.t), next(s.inner()*s.t)
	}
	w.heads = next(s.rows() * s.t)
	w.vectors = at
	for i := range w.norm {
		w.norm[i] = next(s.t)
	}
	w.final, w.bias = next(s.t), next(s.rows())
	return w
}

func (s shape) zero() *weights { return s.over(make([]float32, s.count())) }

// start draws the first weights. prior is how often each id of each table occurs; biases begin at its logarithm.
func (s shape) start(seed uint64, prior [][]int) *weights {
	w, rng := s.zero(), rand.New(rand.NewPCG(seed, 0x7261696e))
	normal := func(x []float32, std float64) {
		for i := range x {
			x[i] = float32(rng.NormFloat64() * std)
		}
	}
	for j := range w.proj {
		normal(w.proj[j], 0.5/math.Sqrt(float64(s.h))) // four of them add up to unit variance
	}
	normal(w.gate0, 0.5)
	for i := range w.w1 {
		normal(w.w1[i], 1/math.Sqrt(float64(s.t)))
		normal(w.w2[i], 0.5/math.Sqrt(float64(s.inner())))
	}
	normal(w.heads, 0.1/math.Sqrt(float64(s.t)))
	for i := range w.norm {
		fill(w.norm[i], 1)
	}
	fill(w.final, 1)
	at := 0
	for h, k := range s.heads {
		total := k
		for _, n := range prior[h] {
			total += n
		}
		for c := range k {
			w.bias[at+c] = float32(math.Log(float64(prior[h][c]+1) / float64(total)))
		}
		at += k
	}
	return w
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// mat views x as (rows, cols).
func mat(x []float32, rows, cols int) kernels.Matrix { return kernels.F32Matrix(x, rows, cols, cols) }
