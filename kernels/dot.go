package kernels

// DotF16 returns Σ x[i]·w[i]. len(w) = len(x).
func DotF16(x []float32, w []uint16) float32 {
	check(len(w) == len(x), "DotF16")
	return dotF16(x, w)
}

// DotF32 returns Σ x[i]·y[i]. len(y) = len(x).
func DotF32(x, y []float32) float32 {
	check(len(y) == len(x), "DotF32")
	return dotF32(x, y)
}

// GemvF16 sets dst[r] = w[r*stride:][:len(x)] · x for every r of dst, on the
// calling goroutine. stride ≥ len(x), in elements.
func GemvF16(dst, x []float32, w []uint16, stride int) {
	rows, n := len(dst), len(x)
	check(stride >= n && (rows == 0 || (rows-1)*stride+n <= len(w)), "GemvF16")
	var out [4]float32
	for r := 0; r < rows; r += 4 {
		// The last group repeats its last row: a row's result comes from the
		// same instructions wherever it stands.
		last := rows - 1
		r1, r2, r3 := min(r+1, last), min(r+2, last), min(r+3, last)
		dot4F16(&out, x, w[r*stride:][:n], w[r1*stride:][:n], w[r2*stride:][:n], w[r3*stride:][:n])
		copy(dst[r:], out[:])
	}
}

// GateUpRows computes gate[i] = gate row · x and up[i] = up row · x of the
// neuron records i. A record begins at mem[off[i]]: gate = [0,H), up = [H,2H),
// down = [2H,3H) elements from there, H = len(x).
func GateUpRows(gate, up, x []float32, mem []uint16, off []int) {
	n, h := len(off), len(x)
	check(len(gate) == n && len(up) == n, "GateUpRows")
	mem = mem[:len(mem):len(mem)] // a record must end within the length, not the capacity
	var out [4]float32
	for i := 0; i < n; i += 2 {
		j := min(i+1, n-1)
		a, b := mem[off[i]:][:3*h], mem[off[j]:][:3*h]
		dot4F16(&out, x, a[:h], a[h:2*h], b[:h], b[h:2*h])
		gate[i], up[i] = out[0], out[1]
		gate[j], up[j] = out[2], out[3]
	}
}

// ScoresF16 sets dst[t] = scale · (q · k_t), k_t = k[t*stride:][:len(q)].
func ScoresF16(dst, q []float32, k []uint16, stride int, scale float32) {
	GemvF16(dst, q, k, stride)
	for t := range dst {
		dst[t] *= scale
	}
}
