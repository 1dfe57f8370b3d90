package train

import (
	"math"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// batch is the working memory of up to max tokens.
type batch struct {
	s    shape
	pool *kernels.Pool
	max  int
	n    int // tokens now

	in    [4][]float32 // (B, H) features; forward norms them in place
	gate0 []int32      // (B) layer 0's gate centroid
	want  [][]int32    // per table (B): the ids to predict

	x       [predictor.Blocks + 1][]float32 // (B, T) inputs of the blocks, and the last one's output
	inv     [predictor.Blocks + 1][]float32 // (B) 1/rms of x
	normed  [predictor.Blocks + 1][]float32 // (B, T) rms(x)⊙norm
	a, silu [predictor.Blocks][]float32     // (B, F) before and after the activation
	logits  []float32                       // (B, rows); softmax in place, then the gradient
	loss    []float32                       // (B, tables)
	rank    []int32                         // (B, tables) how many ids score above the right one, if ranked
	ranked  bool

	dx, dn []float32 // (B, T)
	da     []float32 // (B, F)
}

func newBatch(s shape, pool *kernels.Pool, max int) *batch {
	b := &batch{s: s, pool: pool, max: max, gate0: make([]int32, max)}
	f := func(n int) []float32 { return make([]float32, max*n) }
	for j := range b.in {
		b.in[j] = f(s.h)
	}
	for range s.heads {
		b.want = append(b.want, make([]int32, max))
	}
	for i := range b.x {
		b.x[i], b.inv[i], b.normed[i] = f(s.t), f(1), f(s.t)
	}
	for i := range b.a {
		b.a[i], b.silu[i] = f(s.inner()), f(s.inner())
	}
	b.logits, b.loss, b.rank = f(s.rows()), f(len(s.heads)), make([]int32, max*len(s.heads))
	b.dx, b.dn, b.da = f(s.t), f(s.t), f(s.inner())
	return b
}

// batchBytes is what newBatch allocates.
func batchBytes(s shape, max int) int64 {
	per := 4*s.h + 1 + len(s.heads)*3 + (predictor.Blocks+1)*(2*s.t+1) + 2*predictor.Blocks*s.inner() + s.rows() + 2*s.t + s.inner()
	return 4 * int64(max) * int64(per)
}

// each runs f over the tokens on all threads.
func (b *batch) each(f func(i int)) {
	b.pool.Run(b.n, 4, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i)
		}
	})
}

// forward fills x … logits, loss and, if ranked, rank from in, gate0 and want.
func (b *batch) forward(w *weights) {
	s, n := b.s, b.n
	h, t, f := s.h, s.t, s.inner()
	b.each(func(i int) {
		for j := range b.in {
			row := b.in[j][i*h : (i+1)*h]
			kernels.RMSNorm(row, row, nil, predictor.Eps)
		}
		copy(b.x[0][i*t:(i+1)*t], w.gate0[int(b.gate0[i])*t:])
	})
	for j := range b.in {
		kernels.Gemm(b.pool, mat(b.x[0], n, t), mat(b.in[j], n, h), mat(w.proj[j], t, h).T(), true)
	}
	for k := range predictor.Blocks {
		b.norm(k, w.norm[k])
		kernels.Gemm(b.pool, mat(b.a[k], n, f), mat(b.normed[k], n, t), mat(w.w1[k], f, t).T(), false)
		b.each(func(i int) {
			kernels.SiLU(b.silu[k][i*f:(i+1)*f], b.a[k][i*f:(i+1)*f])
			copy(b.x[k+1][i*t:(i+1)*t], b.x[k][i*t:(i+1)*t])
		})
		kernels.Gemm(b.pool, mat(b.x[k+1], n, t), mat(b.silu[k], n, f), mat(w.w2[k], t, f).T(), true)
	}
	b.norm(predictor.Blocks, w.final)
	rows := s.rows()
	kernels.Gemm(b.pool, mat(b.logits, n, rows), mat(b.normed[predictor.Blocks], n, t), mat(w.heads, rows, t).T(), false)
	b.each(func(i int) {
		kernels.Add(b.logits[i*rows:(i+1)*rows], w.bias)
		at := 0
		for c, k := range s.heads {
			row, want := b.logits[i*rows+at:i*rows+at+k], int(b.want[c][i])
			b.loss[i*len(s.heads)+c] = kernels.LogSumExp(row) - row[want]
			if b.ranked {
				b.rank[i*len(s.heads)+c] = rankOf(row, want)
			}
			at += k
		}
	})
}

// norm writes b.normed[k] and b.inv[k] from b.x[k].
func (b *batch) norm(k int, weight []float32) {
	t := b.s.t
	b.each(func(i int) {
		x := b.x[k][i*t : (i+1)*t]
		kernels.RMSNorm(b.normed[k][i*t:(i+1)*t], x, weight, predictor.Eps)
		sum := float64(kernels.DotF32(x, x))
		b.inv[k][i] = float32(1 / math.Sqrt(sum/float64(t)+predictor.Eps))
	})
}

// rankOf counts the ids that would be named before want: those that score higher, or the same with a lower id.
func rankOf(row []float32, want int) int32 {
	n, v := int32(0), row[want]
	for i, x := range row {
		if x > v || x == v && i < want {
			n++
		}
	}
	return n
}

// meanLoss is the mean cross-entropy over the batch's tokens and tables.
func (b *batch) meanLoss() float64 {
	sum := 0.0
	for _, v := range b.loss[:b.n*len(b.s.heads)] {
		sum += float64(v)
	}
	return sum / float64(b.n*len(b.s.heads))
}
