package train

import (
	"math"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// backward writes the gradient of the mean loss into g; forward came before. It turns b.logits into their gradient.
func (b *batch) backward(w, g *weights) {
	s, n := b.s, b.n
	h, t, f, rows := s.h, s.t, s.inner(), s.rows()
	scale := float32(1 / float64(n*len(s.heads)))
	b.each(func(i int) {
		at := 0
		for c, k := range s.heads {
			row := b.logits[i*rows+at : i*rows+at+k]
			kernels.Softmax(row)
			row[b.want[c][i]]--
			for j := range row {
				row[j] *= scale
			}
			at += k
		}
	})
	last := b.normed[predictor.Blocks]
	kernels.Gemm(b.pool, mat(g.heads, rows, t), mat(b.logits, n, rows).T(), mat(last, n, t), false)
	columnSums(b.pool, g.bias, b.logits, n)
	kernels.Gemm(b.pool, mat(b.dn, n, t), mat(b.logits, n, rows), mat(w.heads, rows, t), false)
	clear(b.dx[:n*t])
	b.normBack(predictor.Blocks, w.final, g.final)
	for k := predictor.Blocks - 1; k >= 0; k-- {
		kernels.Gemm(b.pool, mat(g.w2[k], t, f), mat(b.dx, n, t).T(), mat(b.silu[k], n, f), false)
		kernels.Gemm(b.pool, mat(b.da, n, f), mat(b.dx, n, t), mat(w.w2[k], t, f), false)
		b.each(func(i int) { siluBack(b.da[i*f:(i+1)*f], b.a[k][i*f:(i+1)*f]) })
		kernels.Gemm(b.pool, mat(g.w1[k], f, t), mat(b.da, n, f).T(), mat(b.normed[k], n, t), false)
		kernels.Gemm(b.pool, mat(b.dn, n, t), mat(b.da, n, f), mat(w.w1[k], f, t), false)
		b.normBack(k, w.norm[k], g.norm[k])
	}
	for j := range b.in {
		kernels.Gemm(b.pool, mat(g.proj[j], t, h), mat(b.dx, n, t).T(), mat(b.in[j], n, h), false)
	}
	clear(g.gate0)
	for i, id := range b.gate0[:n] {
		kernels.Add(g.gate0[int(id)*t:(int(id)+1)*t], b.dx[i*t:(i+1)*t])
	}
}

// normBack adds to b.dx the gradient that b.dn, that of normed[k] = x·inv⊙weight, sends to x[k], and writes the
// weight's gradient.
func (b *batch) normBack(k int, weight, gw []float32) {
	t := b.s.t
	b.each(func(i int) {
		x, dy, dx, r := b.x[k][i*t:(i+1)*t], b.dn[i*t:(i+1)*t], b.dx[i*t:(i+1)*t], b.inv[k][i]
		mean := float32(0)
		for j := range x {
			mean += dy[j] * weight[j] * x[j]
		}
		mean *= r * r / float32(t)
		for j := range x {
			dx[j] += r * (dy[j]*weight[j] - mean*x[j])
			dy[j] *= x[j] * r // now this token's share of the weight's gradient
		}
	})
	columnSums(b.pool, gw, b.dn, b.n)
}

// siluBack multiplies da by the activation's derivative at a.
func siluBack(da, a []float32) {
	for j, v := range a {
		s := float32(1 / (1 + math.Exp(-float64(v))))
		da[j] *= s * (1 + v*(1-s))
	}
}

// columnSums writes dst[c] = Σ_i x[i, c], rows ascending, x (n, len(dst)).
func columnSums(pool *kernels.Pool, dst, x []float32, n int) {
	cols := len(dst)
	pool.Run(cols, 64, func(lo, hi int) {
		out := dst[lo:hi]
		clear(out)
		for i := range n {
			kernels.Add(out, x[i*cols+lo:i*cols+hi])
		}
	})
}
