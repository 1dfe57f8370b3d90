package kernels

import (
	"fmt"
	"math"
	"testing"
)

// Contract of dot products: |got − ref| ≤ 2^-140 + 2^-18·Σ|x·w|, ref in
// float64. Every partial sum is rounded to 24 bits; with the lanes and
// accumulators of the narrowest version a chain has at most n/8 of them, and
// the model's n are below 2^14. Not finite where ref is not.
func dotRef(x []float32, w func(i int) float64) (ref, limit float64) {
	var sum, abs float64
	for i, v := range x {
		p := float64(v) * w(i)
		sum += p
		abs += math.Abs(p)
	}
	return sum, 0x1p-140 + 0x1p-18*abs
}

func dotRefF16(x []float32, w []uint16) (ref, limit float64) {
	return dotRef(x, func(i int) float64 { return float64(F16Value(w[i])) })
}

func TestDot(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a16, a32 := allow(t, "DotF16"), allow(t, "DotF32")
		r := newRand(3)
		ax, aw, ay := newArena(t), newArena(t), newArena(t)
		for _, n := range append(lengths(), 14336, 14337) {
			for _, kind := range kinds {
				for _, end := range []bool{false, true} {
					x, w, y := take[float32](ax, n, end), take[uint16](aw, n, !end), take[float32](ay, n, !end)
					randF32(r, x, kind)
					randF32(r, y, kind)
					randF16(r, w, kind)
					ref, limit := dotRefF16(x, w)
					a16.check(DotF16(x, w), ref, limit, "n=%d %s", n, kind)
					ref, limit = dotRef(x, func(i int) float64 { return float64(y[i]) })
					a32.check(DotF32(x, y), ref, limit, "n=%d %s", n, kind)
				}
			}
		}
	})
}

func TestGemvF16(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "GemvF16")
		r := newRand(4)
		ad, ax, aw := newArena(t), newArena(t), newArena(t)
		for _, n := range []int{1, 7, 8, 16, 17, 31, 32, 47, 48, 64, 80, 128, 129, 576, 1000} {
			for rows := range 12 {
				for _, extra := range []int{0, 1, 13} {
					kind := kinds[(n+rows+extra)%len(kinds)]
					stride := n + extra
					end := (rows+extra)%2 == 0
					dst, x := take[float32](ad, rows, end), take[float32](ax, n, end)
					w := take[uint16](aw, max(0, (rows-1)*stride+n), end)
					randF32(r, x, kind)
					randF16(r, w, kind)
					GemvF16(dst, x, w, stride)
					ad.intact(t, "GemvF16")
					var one [1]float32
					for i := range dst {
						row := w[i*stride:][:n]
						ref, limit := dotRefF16(x, row)
						a.check(dst[i], ref, limit, "n=%d rows=%d stride=%d row %d %s", n, rows, stride, i, kind)
						GemvF16(one[:], x, row, n)
						wantBits(t, fmt.Sprintf("GemvF16 n=%d: row %d of %d and the row alone", n, i, rows), dst[i:i+1], one[:])
					}
				}
			}
		}
	})
}

// randRecords makes neuron records of 3·h elements at unordered, odd places.
func randRecords(h, count int, kind string, seed uint64) (mem []uint16, off []int) {
	r := newRand(seed)
	stride := 3*h + 5
	mem = make([]uint16, stride*(count+2))
	randF16(r, mem, kind)
	for _, p := range r.Perm(count + 2)[:count] {
		off = append(off, p*stride+p%3)
	}
	return mem, off
}

func TestGateUpRows(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "GateUpRows")
		r := newRand(5)
		for _, h := range []int{1, 5, 8, 16, 33, 64, 100, 576, 1535, 1537} {
			for _, n := range []int{0, 1, 3, 4, 5, 7, 8, 9, 17} {
				kind := kinds[(h+n)%len(kinds)]
				mem, off := randRecords(h, n, kind, uint64(h*100+n))
				x, gate, up := make([]float32, h), make([]float32, n), make([]float32, n)
				randF32(r, x, kind)
				GateUpRows(gate, up, x, mem, off)
				for i, o := range off {
					ref, limit := dotRefF16(x, mem[o:o+h])
					a.check(gate[i], ref, limit, "gate h=%d %d of %d", h, i, n)
					ref, limit = dotRefF16(x, mem[o+h:o+2*h])
					a.check(up[i], ref, limit, "up h=%d %d of %d", h, i, n)
					var g, u [1]float32
					GateUpRows(g[:], u[:], x, mem, off[i:i+1])
					wantBits(t, "gate alone", gate[i:i+1], g[:])
					wantBits(t, "up alone", up[i:i+1], u[:])
				}
			}
		}
	})
}

func TestScoresF16(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "ScoresF16")
		r := newRand(6)
		ad, aq, ak := newArena(t), newArena(t), newArena(t)
		for _, n := range []int{4, 32, 64, 80, 96, 128} {
			for _, rows := range []int{0, 1, 3, 7, 8, 9, 16, 33, 63} {
				for _, scale := range []float32{1, 0.125, -3} {
					dst, q := take[float32](ad, rows, rows%2 == 0), take[float32](aq, n, rows%2 == 0)
					k := take[uint16](ak, max(0, (rows-1)*(n+8)+n), rows%2 == 1)
					randF32(r, q, "normal")
					randF16(r, k, "normal")
					ScoresF16(dst, q, k, n+8, scale)
					ad.intact(t, "ScoresF16")
					var one [1]float32
					for i := range dst {
						ScoresF16(one[:], q, k[i*(n+8):], n+8, scale)
						wantBits(t, fmt.Sprintf("ScoresF16 n=%d: row %d of %d and the row alone", n, i, rows), dst[i:i+1], one[:])
						ref, limit := dotRefF16(q, k[i*(n+8):][:n])
						s := float64(scale)
						a.check(dst[i], s*ref, math.Abs(s)*limit+0x1p-24*math.Abs(s*ref), "n=%d row %d", n, i)
					}
				}
			}
		}
	})
}

func TestDotRefusesWrongLengths(t *testing.T) {
	x, w := make([]float32, 8), make([]uint16, 64)
	mustPanic(t, "DotF16", func() { DotF16(x, w[:7]) })
	mustPanic(t, "DotF32", func() { DotF32(x, x[:7]) })
	mustPanic(t, "GemvF16 stride", func() { GemvF16(x, x, w, 7) })
	mustPanic(t, "GemvF16 rows", func() { GemvF16(x, x, w[:63], 8) })
	mustPanic(t, "GateUpRows", func() { GateUpRows(x[:1], x[:1], x, w[:23], []int{0}) })
	mustPanic(t, "GateUpRows", func() { GateUpRows(x[:1], x[:1], x, w, []int{-1}) })
	mustPanic(t, "GateUpRows", func() { GateUpRows(x[:2], x[:1], x, w, []int{0}) })
}
