package kernels

// ScoresF16 sets dst[t] = scale · (q · k_t), k_t = k[t*stride:][:len(q)].
func ScoresF16(dst, q []float32, k []uint16, stride int, scale float32) {
	n, rows := len(q), len(dst)
	check(stride >= n && (rows == 0 || (rows-1)*stride+n <= len(k)), "ScoresF16")
	var out [8]float32
	var now, next [8][]uint16
	for t := scoresF16(dst, q, k, stride, scale); t < rows; t += 8 {
		// The last group repeats the last row, so a row's result comes from the
		// same operations wherever it stands.
		for i := range 8 {
			now[i] = k[min(t+i, rows-1)*stride:][:n]
			next[i] = k[min(t+i+rowsAhead(n), rows-1)*stride:][:n]
		}
		dot8F16(&out, q, &now, &next)
		for i := range out {
			out[i] *= scale
		}
		copy(dst[t:], out[:])
	}
}

// WeightedSumF16 sets y = Σ_t p[t]·v_t, t ascending, v_t = v[t*stride:][:len(y)].
func WeightedSumF16(y []float32, p []float32, v []uint16, stride int) {
	clear(y)
	AddWeightedF16(y, p, v, stride)
}

// AddWeightedF16 adds to y the rows v_t as WeightedSumF16 does: y[i] =
// fma(p[t], v_t[i], y[i]), t ascending. So the sum may be taken in pieces: the
// heads that share a row can all read it while it is in a cache.
func AddWeightedF16(y []float32, p []float32, v []uint16, stride int) {
	n, rows := len(y), len(p)
	check(stride >= n && (rows == 0 || (rows-1)*stride+n <= len(v)), "AddWeightedF16")
	t := weightedF16(y, p, v, stride)
	var now, next [8][]uint16
	for ; t+8 <= rows; t += 8 {
		for i := range 8 {
			now[i] = v[(t+i)*stride:][:n]
			next[i] = v[min(t+i+rowsAhead(n), rows-1)*stride:][:n]
		}
		axpy8F16(y, (*[8]float32)(p[t:]), &now, &next)
	}
	for ; t < rows; t++ {
		axpyF16(y, p[t], v[t*stride:][:n])
	}
}
