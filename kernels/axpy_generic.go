package kernels

import "math"

// fma32 is a·b + c rounded once to float32, as the processors' instruction.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b) // exact: 24 + 24 bits
	z := float64(c)
	s := p + z
	// What the float64 sum lost (Knuth's two-sum). Where it is not zero, force
	// the last bit of s to be odd on the right side: rounding s to float32 then
	// cannot see a false tie.
	t := s - p
	e := (p - (s - t)) + (z - t)
	if e > 0 || e < 0 {
		if b := math.Float64bits(s); b&1 == 0 {
			if (e > 0) == (s > 0) {
				b++
			} else {
				b--
			}
			s = math.Float64frombits(b)
		}
	}
	return float32(s)
}

func axpyF32Generic(y []float32, a float32, x []float32) {
	for i, v := range x {
		y[i] = fma32(a, v, y[i])
	}
}

func axpyF16Generic(y []float32, a float32, w []uint16) {
	for i, h := range w {
		y[i] = fma32(a, F16Value(h), y[i])
	}
}

// axpy8F16Generic is eight AxpyF16, one after the other.
func axpy8F16Generic(y []float32, a *[8]float32, w *[8][]uint16) {
	for k, row := range w {
		axpyF16Generic(y, a[k], row)
	}
}
