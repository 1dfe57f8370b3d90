package kernels

func gemvQ4Generic(dst, x []float32, codes []byte, scales []uint16) {
	groups := len(x) / Q4Group
	for r := range dst {
		dst[r] = dotQ4Generic(x, codes[r*groups*Q4Group/2:], scales[r*groups:][:groups])
	}
}

func dotQ4Generic(x []float32, codes []byte, scales []uint16) float32 {
	const half = Q4Group / 2
	var sum float64
	for g, s := range scales {
		var part float64
		in, b := x[g*Q4Group:(g+1)*Q4Group], codes[g*half:(g+1)*half]
		for j, v := range b {
			part += float64(in[j])*float64(int(v&15)-8) + float64(in[half+j])*float64(int(v>>4)-8)
		}
		sum += part * float64(F16Value(s))
	}
	return float32(sum)
}
