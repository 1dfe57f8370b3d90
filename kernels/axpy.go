package kernels

// AxpyF32 does y[i] = fma(a, x[i], y[i]). len(x) = len(y).
func AxpyF32(y []float32, a float32, x []float32) {
	check(len(x) == len(y), "AxpyF32")
	axpyF32(y, a, x)
}

// AxpyF16 does y[i] = fma(a, w[i], y[i]). len(w) = len(y).
func AxpyF16(y []float32, a float32, w []uint16) {
	check(len(w) == len(y), "AxpyF16")
	axpyF16(y, a, w)
}

// Add does dst[i] += x[i]. len(x) = len(dst).
func Add(dst, x []float32) {
	check(len(x) == len(dst), "Add")
	axpyF32(dst, 1, x) // fma(1, x, y) rounds once: it is x + y
}

// DownRows adds to y[lo:hi] the down rows of the neuron records i, in
// ascending i: y[h] = fma(a[i], down_i[h], y[h]). Records as in GateUpRows,
// H = hidden; other elements of y are not touched. Any split of [0,H) into
// ranges gives the same bits.
func DownRows(y []float32, a []float32, mem []uint16, off []int, hidden, lo, hi int) {
	check(len(a) == len(off) && 0 <= lo && lo <= hi && hi <= hidden && hi <= len(y), "DownRows")
	mem = mem[:len(mem):len(mem)] // a record must end within the length, not the capacity
	y = y[lo:hi]
	from, to := 2*hidden+lo, 2*hidden+hi
	i, last := 0, len(off)-1
	var now, next [8][]uint16
	for ; i+8 <= len(off); i += 8 {
		for k := range 8 {
			now[k] = mem[off[i+k]:][from:to]
			next[k] = mem[off[min(i+k+16, last)]:][from:to]
		}
		axpy8F16(y, (*[8]float32)(a[i:]), &now, &next)
	}
	for ; i < len(off); i++ {
		axpyF16(y, a[i], mem[off[i]:][from:to])
	}
}
