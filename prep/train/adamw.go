package train

import (
	"math"

	"neuroprefetcher/kernels"
)

// AdamW's constants.
const (
	beta1   = 0.9
	beta2   = 0.98
	adamEps = 1e-8
	decay   = 0.05 // of matrices; norms and biases do not decay
)

// warmup is the share of all steps in which the learning rate rises; it then falls along a half cosine to lowest.
const (
	warmup = 0.05
	lowest = 0.05
)

// rate is the learning rate of step (from 0) of total, as a share of the highest.
func rate(step, total int) float64 {
	up := math.Max(1, warmup*float64(total))
	if s := float64(step) + 1; s < up {
		return s / up
	}
	done := (float64(step) - up + 1) / math.Max(1, float64(total)-up)
	return lowest + (1-lowest)*0.5*(1+math.Cos(math.Pi*math.Min(1, math.Max(0, done))))
}

// adamW does one step (from 0) on w with gradient g and moments m, v.
func adamW(pool *kernels.Pool, w, g, m, v *weights, step int, lr float64) {
	c1 := float32(1 / (1 - math.Pow(beta1, float64(step+1))))
	c2 := float32(1 / (1 - math.Pow(beta2, float64(step+1))))
	rate := float32(lr)
	pool.Run(len(w.flat), 1<<14, func(lo, hi int) {
		for lo < hi {
			end, keep := hi, float32(1-lr*decay)
			if lo < w.vectors {
				end = min(hi, w.vectors)
			} else {
				keep = 1
			}
			p, d, a, b := w.flat[lo:end], g.flat[lo:end], m.flat[lo:end], v.flat[lo:end]
			for i, x := range d {
				a[i] = beta1*a[i] + (1-beta1)*x
				b[i] = beta2*b[i] + (1-beta2)*x*x
				p[i] = keep*p[i] - rate*(a[i]*c1)/(sqrt32(b[i]*c2)+adamEps)
			}
			lo = end
		}
	})
}

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
