package vocab

import (
	"math"

	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib/forward"
)

// taken is what one layer's forward pass leaves, over T tokens.
type taken struct {
	m     int
	imp   *importances // nil unless wanted
	ids   [2][]int32   // gate and up ids (T) of the cluster stage; nil unless wanted
	sums  [2][]float32 // (K, M) Σ silu(gate)² and Σ up² over the tokens of an id
	count [2][]int32   // (K)
	down  []float32    // (M) ‖down‖₂
	begin []bool       // (T) position 0 of its window

	wide []float32 // (t, M) a window's importances
	act  []float32 // (t, n) silu(gate) of a window and chunk, then squares
	t    int
}

// tap takes neurons [lo, hi) of the t tokens of a window whose first is row.
func (a *taken) tap(pool *kernels.Pool, row, t, lo, hi int, gate, up []float32) {
	n := hi - lo
	if len(a.act) < t*n {
		a.act = make([]float32, t*n)
	}
	a.t = t
	if a.imp != nil && len(a.wide) < t*a.m {
		a.wide = make([]float32, t*a.m)
	}
	pool.Run(t, 8, func(first, last int) {
		for i := first; i < last; i++ {
			s, u := a.act[i*n:(i+1)*n], up[i*n:(i+1)*n]
			kernels.SiLU(s, gate[i*n:(i+1)*n])
			if a.imp == nil {
				continue
			}
			dst, down := a.wide[i*a.m+lo:i*a.m+hi], a.down[lo:hi]
			for j, v := range s {
				v *= u[j] * down[j]
				dst[j] = math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
			}
		}
	})
	for p, x := range [][]float32{a.act, up} {
		if a.ids[p] == nil {
			continue
		}
		pool.Run(n, 64, func(first, last int) { // tokens ascending, so the sums do not depend on the threads
			for i := range t {
				if a.begin[row+i] {
					continue
				}
				sum := a.sums[p][int(a.ids[p][row+i])*a.m+lo:]
				for j, v := range x[i*n+first : i*n+last] {
					sum[first+j] += v * v
				}
			}
		})
	}
}

// after stores the importances of the window whose first token is row.
func (a *taken) after(pool *kernels.Pool, row int) {
	for p := range a.ids {
		if a.ids[p] != nil {
			for i := range a.t {
				if !a.begin[row+i] {
					a.count[p][a.ids[p][row+i]]++
				}
			}
		}
	}
	if a.imp == nil {
		return
	}
	pool.Run(a.t, 4, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x, dst := a.wide[i*a.m:(i+1)*a.m], a.imp.row(row+i)
			sum := 0.0
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			if a.begin[row+i] || !(sum > 0) || math.IsInf(sum, 0) {
				clear(dst)
				continue
			}
			f := float32(1 / math.Sqrt(sum))
			for j := range x {
				x[j] *= f
			}
			kernels.F32ToF16(dst, x)
		}
	})
}

// taps are those of the forward pass.
func (a *taken) taps(pool *kernels.Pool) *forward.Taps {
	return &forward.Taps{
		MLP:   func(row, t, lo, hi int, gate, up []float32) { a.tap(pool, row, t, lo, hi, gate, up) },
		After: func(row int, _ []float32) { a.after(pool, row) },
	}
}
