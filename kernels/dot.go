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
	// Of rows that follow each other, one from each quarter: four long streams
	// through memory, which the processor's prefetchers like best. Of rows with
	// gaps, four neighbours. The last rounds repeat the last row, so a row's
	// result comes from the same instructions wherever it stands.
	apart, step, rounds := 1, 4, rows
	if stride == n {
		apart, step, rounds = (rows+3)/4, 1, (rows+3)/4
	}
	var out [4]float32
	var now, next [4][]uint16
	last, ahead := rows-1, step*groupsAhead(n)
	for r := 0; r < rounds; r += step {
		for k := range 4 {
			i := r + k*apart
			now[k] = w[min(i, last)*stride:][:n]
			next[k] = w[min(i+ahead, last)*stride:][:n]
		}
		dot4F16(&out, x, &now, &next)
		for k := range 4 {
			dst[min(r+k*apart, last)] = out[k]
		}
	}
}

// GateUpRows computes gate[i] = gate row · x and up[i] = up row · x of the
// neuron records i. A record begins at mem[off[i]]: gate = [0,H), up = [H,2H),
// down = [2H,3H) elements from there, H = len(x).
func GateUpRows(gate, up, x []float32, mem []uint16, off []int) {
	n, h := len(off), len(x)
	check(len(gate) == n && len(up) == n, "GateUpRows")
	mem = mem[:len(mem):len(mem)] // a record must end within the length, not the capacity
	var g, u, nextG, nextU [8][]uint16
	last := n - 1
	for i := 0; i < n; i += 8 {
		// The last group repeats its last record, as GemvF16 its last row.
		for k := range 8 {
			rec := mem[off[min(i+k, last)]:][:3*h]
			g[k], u[k] = rec[:h], rec[h:2*h]
			rec = mem[off[min(i+k+8, last)]:][:3*h]
			nextG[k], nextU[k] = rec[:h], rec[h:2*h]
		}
		var outG, outU [8]float32
		if h < longRow {
			dot8F16(&outG, x, &g, &nextG)
			dot8F16(&outU, x, &u, &nextU)
		} else {
			g0, g1, u0, u1 := (*[4][]uint16)(g[:4]), (*[4][]uint16)(g[4:]), (*[4][]uint16)(u[:4]), (*[4][]uint16)(u[4:])
			dot4F16((*[4]float32)(outG[:4]), x, g0, u0)
			dot4F16((*[4]float32)(outU[:4]), x, u0, g1)
			dot4F16((*[4]float32)(outG[4:]), x, g1, u1)
			dot4F16((*[4]float32)(outU[4:]), x, u1, (*[4][]uint16)(nextG[:4]))
		}
		copy(gate[i:], outG[:])
		copy(up[i:], outU[:])
	}
}
