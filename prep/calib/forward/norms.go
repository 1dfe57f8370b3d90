package forward

import (
	"math"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// DownNorms writes the Euclidean norm of every neuron's down column of h elements into dst (M).
func DownNorms(pool *kernels.Pool, dst []float32, rows model.Rows, h int) {
	pool.Run(rows.N, 64, func(lo, hi int) {
		x := make([]float32, h)
		for n := lo; n < hi; n++ {
			kernels.F16ToF32(x, rows.Mem[n*rows.Stride+2*h:n*rows.Stride+3*h])
			sum := 0.0
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			dst[n] = float32(math.Sqrt(sum))
		}
	})
}
