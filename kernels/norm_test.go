package kernels

import (
	"math"
	"testing"
)

// Contract: |got − ref| ≤ 2^-140 + 2^-20·|ref|, ref in float64.
func TestRMSNorm(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "RMSNorm")
		r := newRand(11)
		ad, ax, aw := newArena(t), newArena(t), newArena(t)
		for _, n := range lengths() {
			for k, eps := range []float32{1e-5, 1e-6, 0.5} {
				for _, end := range []bool{false, true} {
					dst, x, w := take[float32](ad, n, end), take[float32](ax, n, !end), take[float32](aw, n, !end)
					randF32(r, x, []string{"normal", "wide"}[k%2])
					randF32(r, w, "normal")
					if k == 2 {
						w = nil
					}
					var sq float64
					for _, v := range x {
						sq += float64(v) * float64(v)
					}
					scale := 1 / math.Sqrt(sq/float64(n)+float64(eps))
					want := func(i int) float64 {
						if w == nil {
							return float64(x[i]) * scale
						}
						return float64(x[i]) * scale * float64(w[i])
					}
					RMSNorm(dst, x, w, eps)
					ad.intact(t, "RMSNorm")
					for i := range dst {
						a.check(dst[i], want(i), 0x1p-140+0x1p-20*math.Abs(want(i)), "n=%d eps=%g", n, eps)
					}
					first := append([]float32(nil), dst...)
					RMSNorm(x, x, w, eps)
					wantBits(t, "RMSNorm in place", x, first)
				}
			}
		}
	})
}

// Contract: |got − ref| ≤ 2^-140 + 2^-22·(|a·cos| + |b·sin|).
func TestRoPE(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "RoPE")
		r := newRand(12)
		ah, ac, as := newArena(t), newArena(t), newArena(t)
		for half := range 70 {
			for _, end := range []bool{false, true} {
				head, cos, sin := take[float32](ah, 2*half, end), take[float32](ac, half, end), take[float32](as, half, end)
				randF32(r, head, "normal")
				for i := range cos {
					angle := r.Float64() * 1000
					cos[i], sin[i] = float32(math.Cos(angle)), float32(math.Sin(angle))
				}
				old := append([]float32(nil), head...)
				RoPE(head, cos, sin)
				ah.intact(t, "RoPE")
				for i := range cos {
					x, y, c, s := float64(old[i]), float64(old[i+half]), float64(cos[i]), float64(sin[i])
					a.check(head[i], x*c-y*s, 0x1p-140+0x1p-22*(math.Abs(x*c)+math.Abs(y*s)), "half=%d %d", half, i)
					a.check(head[i+half], y*c+x*s, 0x1p-140+0x1p-22*(math.Abs(y*c)+math.Abs(x*s)), "half=%d %d", half, i)
				}
			}
		}
	})
}

func TestMaxIndex(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachLevel(t, func(t *testing.T) {
		r := newRand(13)
		ax := newArena(t)
		for _, n := range lengths() {
			for round := range 6 {
				x := take[float32](ax, n, round%2 == 0)
				for i := range x {
					x[i] = float32(r.IntN(4 + n/3)) // ties
					if round == 4 && r.IntN(3) == 0 {
						x[i] = nan
					}
					if round == 5 {
						x[i] -= 1e30
					}
				}
				best := -1
				for i, v := range x {
					if v == v && (best < 0 || v > x[best]) {
						best = i
					}
				}
				if n > 0 && best < 0 {
					best = 0
				}
				if got := MaxIndex(x); got != best {
					t.Fatalf("n=%d round %d: MaxIndex = %d, want %d", n, round, got, best)
				}
			}
		}
		for _, c := range []struct {
			x    []float32
			want int
		}{{nil, -1}, {[]float32{nan, nan}, 0}, {[]float32{-inf, -inf}, 0}, {[]float32{nan, -1, inf, inf}, 2},
			{[]float32{float32(math.Copysign(0, -1)), 0}, 0}} {
			if got := MaxIndex(c.x); got != c.want {
				t.Errorf("MaxIndex(%v) = %d, want %d", c.x, got, c.want)
			}
		}
	})
}

func TestNormRefusesWrongLengths(t *testing.T) {
	x := make([]float32, 8)
	mustPanic(t, "RMSNorm dst", func() { RMSNorm(x[:7], x, x, 1) })
	mustPanic(t, "RMSNorm weight", func() { RMSNorm(x, x, x[:7], 1) })
	mustPanic(t, "RoPE cos", func() { RoPE(x, x[:3], x[:4]) })
	mustPanic(t, "RoPE sin", func() { RoPE(x, x[:4], x[:5]) })
	mustPanic(t, "RoPE odd", func() { RoPE(x[:7], x[:3], x[:3]) })
}
