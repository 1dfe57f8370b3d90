package kernels

func dotF16Generic(x []float32, w []uint16) float32 {
	var s float64
	for i, v := range x {
		s += float64(v) * float64(F16Value(w[i]))
	}
	return float32(s)
}

func dotF32Generic(x, y []float32) float32 {
	var s float64
	for i, v := range x {
		s += float64(v) * float64(y[i])
	}
	return float32(s)
}

// dot4F16Generic is four dot products with one x.
func dot4F16Generic(out *[4]float32, x []float32, w *[4][]uint16) {
	out[0] = dotF16Generic(x, w[0])
	out[1] = dotF16Generic(x, w[1])
	out[2] = dotF16Generic(x, w[2])
	out[3] = dotF16Generic(x, w[3])
}

// dot8F16Generic is eight dot products with one x.
func dot8F16Generic(out *[8]float32, x []float32, w *[8][]uint16) {
	for k, row := range w {
		out[k] = dotF16Generic(x, row)
	}
}
