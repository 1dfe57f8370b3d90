package kernels

import "math"

// expSumGeneric sets dst = exp(x − m) and returns the sum. dst may be x.
func expSumGeneric(dst, x []float32, m float32) float32 {
	var sum float64
	for i, v := range x {
		e := float32(math.Exp(float64(v - m)))
		dst[i] = e
		sum += float64(e)
	}
	return float32(sum)
}

func siluMulGeneric(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(float64(g)/(1+math.Exp(-float64(g)))) * up[i]
	}
}

// maxF32Generic is the greatest value, NaN passed over; −Inf if there is none.
func maxF32Generic(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
