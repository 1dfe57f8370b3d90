package kernels

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// Contract of the row updates: one fused multiply-add per element and term, in
// order. Exact, so all levels on all machines agree to the bit.

// fmaBig is a·b + c with one rounding, by way of arbitrary precision.
func fmaBig(a, b, c float32) float32 {
	f := func(v float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(v)) }
	p := f(a)
	p.Mul(p, f(b))
	p.Add(p, f(c))
	v, _ := p.Float32()
	return v
}

func TestFMA32(t *testing.T) {
	r := newRand(7)
	finite := func() float32 {
		for {
			if f := math.Float32frombits(r.Uint32()); f-f == 0 {
				return f
			}
		}
	}
	for i := range 300000 {
		a, b, c := finite(), finite(), finite()
		switch i % 4 {
		case 1: // near each other: cancellation and false ties
			c = -a * b * (1 + float32(r.IntN(8))*0x1p-24)
		case 2: // c far above the product, at a tie of its own
			c = float32(math.Ldexp(float64(r.Uint32()|1<<31), -32))
			a, b = float32(math.Ldexp(float64(r.IntN(1<<24)|1), -24-r.IntN(40))), float32(1+r.Float64())
		case 3: // subnormal results
			a, b, c = a*0x1p-60, float32(r.NormFloat64())*0x1p-70, c*0x1p-100
		}
		if c-c != 0 || a-a != 0 {
			continue
		}
		got, want := fma32(a, b, c), fmaBig(a, b, c)
		if got != want {
			t.Fatalf("fma32(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range [][4]float32{{inf, 1, 1, inf}, {1, 2, -inf, -inf}, {inf, -1, 3, -inf}} {
		if got := fma32(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("fma32%v = %g", c[:3], got)
		}
	}
	for _, c := range [][3]float32{{inf, 0, 1}, {inf, 1, -inf}, {1, 1, float32(math.NaN())}} {
		if got := fma32(c[0], c[1], c[2]); got == got {
			t.Errorf("fma32%v = %g, want NaN", c, got)
		}
	}
}

func TestAxpy(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(8)
		ay, ax, aw := newArena(t), newArena(t), newArena(t)
		for _, n := range lengths() {
			for k, kind := range kinds {
				for _, end := range []bool{false, true} {
					s := []float32{0.7, -3.25, 0, float32(math.Copysign(0, -1)), 1e-30, float32(math.Inf(1))}[(n+k)%6]
					y, x, w := take[float32](ay, n, end), take[float32](ax, n, !end), take[uint16](aw, n, !end)
					randF32(r, y, kind)
					randF32(r, x, kind)
					randF16(r, w, kind)
					w16, w32, add := make([]float32, n), make([]float32, n), make([]float32, n)
					old := append([]float32(nil), y...)
					for i := range y {
						w16[i] = fma32(s, F16Value(w[i]), y[i])
						w32[i] = fma32(s, x[i], y[i])
						add[i] = y[i] + x[i]
					}
					what := fmt.Sprintf("n=%d a=%g %s", n, s, kind)
					AxpyF16(y, s, w)
					ay.intact(t, "AxpyF16")
					wantBits(t, "AxpyF16 "+what, y, w16)
					copy(y, old)
					AxpyF32(y, s, x)
					ay.intact(t, "AxpyF32")
					wantBits(t, "AxpyF32 "+what, y, w32)
					copy(y, old)
					Add(y, x)
					ay.intact(t, "Add")
					wantBits(t, "Add "+what, y, add)
				}
			}
		}
	})
}

func TestDownRows(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(9)
		for _, h := range []int{1, 7, 16, 31, 64, 576} {
			for _, count := range []int{0, 1, 3, 7, 8, 9, 16, 27} {
				kind := kinds[(h+count)%len(kinds)]
				mem, off := randRecords(h, count, kind, uint64(h*1000+count))
				a, start, want := make([]float32, count), make([]float32, h), make([]float32, h)
				randF32(r, a, kind)
				randF32(r, start, kind)
				copy(want, start)
				for i, o := range off {
					for j := range want {
						want[j] = fma32(a[i], F16Value(mem[o+2*h+j]), want[j])
					}
				}
				y := make([]float32, h)
				for range 12 { // cut [0,h) anywhere: the same bits
					copy(y, start)
					for lo := 0; lo < h; {
						hi := lo + 1 + r.IntN(h-lo)
						DownRows(y, a, mem, off, h, lo, hi)
						wantBits(t, "DownRows beyond its range", y[hi:], start[hi:])
						lo = hi
					}
					wantBits(t, fmt.Sprintf("DownRows h=%d count=%d %s", h, count, kind), y, want)
				}
			}
		}
	})
}

func TestWeightedSumF16(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(10)
		ay, ap, av := newArena(t), newArena(t), newArena(t)
		for _, n := range []int{1, 9, 24, 32, 64, 96, 128} {
			for _, rows := range []int{0, 1, 2, 7, 8, 9, 40, 63} {
				stride := n + rows%3*8
				p, v := take[float32](ap, rows, true), take[uint16](av, max(0, (rows-1)*stride+n), rows%2 == 1)
				randF32(r, p, "normal")
				randF16(r, v, "wide")
				want := make([]float32, n)
				for i := range p {
					for j := range want {
						want[j] = fma32(p[i], F16Value(v[i*stride+j]), want[j])
					}
				}
				y := take[float32](ay, n, rows%2 == 0)
				randF32(r, y, "special")
				WeightedSumF16(y, p, v, stride)
				ay.intact(t, "WeightedSumF16")
				wantBits(t, fmt.Sprintf("WeightedSumF16 n=%d rows=%d", n, rows), y, want)
				clear(y)
				for t0 := 0; t0 < rows; { // in pieces: the same bits
					t1 := t0 + 1 + r.IntN(rows-t0)
					AddWeightedF16(y, p[t0:t1], v[t0*stride:], stride)
					t0 = t1
				}
				wantBits(t, fmt.Sprintf("AddWeightedF16 n=%d rows=%d", n, rows), y, want)
			}
		}
	})
}

func TestAxpyRefusesWrongLengths(t *testing.T) {
	y, w := make([]float32, 8), make([]uint16, 24)
	mustPanic(t, "AxpyF16", func() { AxpyF16(y, 1, w[:7]) })
	mustPanic(t, "AxpyF32", func() { AxpyF32(y, 1, y[:7]) })
	mustPanic(t, "Add", func() { Add(y, y[:7]) })
	mustPanic(t, "DownRows range", func() { DownRows(y, y[:1], w, []int{0}, 8, 0, 9) })
	mustPanic(t, "DownRows range", func() { DownRows(y, y[:1], w, []int{0}, 8, -1, 8) })
	mustPanic(t, "DownRows record", func() { DownRows(y, y[:1], w, []int{1}, 8, 0, 8) })
	mustPanic(t, "DownRows a", func() { DownRows(y, y[:2], w, []int{0}, 8, 0, 8) })
	mustPanic(t, "AddWeightedF16", func() { AddWeightedF16(y, y[:4], w, 8) })
	mustPanic(t, "WeightedSumF16", func() { WeightedSumF16(y, y[:4], w, 8) })
}
