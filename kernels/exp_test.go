package kernels

import (
	"math"
	"testing"
)

// Contract of one exponential: |got − ref| ≤ 2^-148 + 1e-6·|ref|, ref = exp in
// float64 of the same float32 argument: subnormal results are correct too.
func TestExp(t *testing.T) {
	inf := float32(math.Inf(-1))
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "exp")
		var x []float32
		for v := float32(0); v > -120; v -= 0.0017 {
			x = append(x, v)
		}
		x = append(x, inf, -1e30, -103.9, -104, -87.33655, -87.33654, -0x1p-149)
		dst := make([]float32, len(x))
		for _, m := range []float32{0, 3.5, -40, 1e-3} {
			y := make([]float32, len(x))
			for i := range x {
				y[i] = x[i] + m
			}
			expSum(dst, y, m)
			for i := range y {
				if d := y[i] - m; d <= 0 {
					want := math.Exp(float64(d))
					a.check(dst[i], want, 0x1p-148+1e-6*want, "exp(%g)", d)
				}
			}
		}
		if dst[len(x)-7] != 0 {
			t.Errorf("exp(-Inf) = %g", dst[len(x)-7])
		}
	})
}

// Contract: |got − ref| ≤ 2^-148 + 2e-6·|ref|.
func TestSoftmaxAndLogSumExp(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		soft, lse := allow(t, "Softmax"), allow(t, "LogSumExp")
		r := newRand(14)
		ax := newArena(t)
		for _, n := range append(lengths()[1:], 20000) {
			for round, spread := range []float64{1, 10, 60, 0} {
				x := take[float32](ax, n, round%2 == 0)
				m := math.Inf(-1)
				for i := range x {
					x[i] = float32(r.NormFloat64()*spread + 100*float64(round-1))
					if round == 2 && i%5 == 1 {
						x[i] = float32(math.Inf(-1))
					}
					m = max(m, float64(x[i]))
				}
				old := append([]float32(nil), x...)
				var sum float64
				for _, v := range x {
					sum += math.Exp(float64(v) - m)
				}
				got := LogSumExp(x)
				ax.intact(t, "LogSumExp")
				wantBits(t, "LogSumExp's argument", x, old)
				ref := m + math.Log(sum)
				lse.check(got, ref, 2e-6*max(1, math.Abs(ref)), "n=%d spread=%g", n, spread)
				Softmax(x)
				ax.intact(t, "Softmax")
				for i := range x {
					// x − max is rounded to float32 before the exponential.
					want := math.Exp(float64(float32(float64(old[i])-m))) / sum
					soft.check(x[i], want, 0x1p-148+2e-6*want, "n=%d spread=%g", n, spread)
				}
			}
		}
		Softmax(nil)
		if v := LogSumExp(nil); !math.IsInf(float64(v), -1) {
			t.Errorf("LogSumExp(nil) = %g", v)
		}
		for n := 1; n < 40; n++ { // what is not a number does not vanish
			x := make([]float32, n)
			x[n/2] = float32(math.NaN())
			if v := LogSumExp(x); v == v {
				t.Errorf("LogSumExp with NaN, n=%d: %g", n, v)
			}
			Softmax(x)
			for i, v := range x {
				if v == v {
					t.Fatalf("Softmax with NaN, n=%d: element %d is %g", n, i, v)
				}
			}
		}
	})
}

// Contract: |got − ref| ≤ 2^-100·(1 + |up|) + 2e-6·|ref|.
func TestSiLU(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a, b := allow(t, "SiLU"), allow(t, "SiLUMul")
		r := newRand(15)
		ad, ag, au := newArena(t), newArena(t), newArena(t)
		for _, n := range append(lengths(), 257, 600) {
			for _, scale := range []float64{1, 30, 1e20, 0x1p-130} {
				for _, end := range []bool{false, true} {
					dst, g, u := take[float32](ad, n, end), take[float32](ag, n, !end), take[float32](au, n, !end)
					for i := range g {
						g[i] = float32(r.NormFloat64() * scale)
					}
					randF32(r, u, "normal")
					ref := func(i int) float64 { v := float64(g[i]); return v / (1 + math.Exp(-v)) }
					SiLU(dst, g)
					ad.intact(t, "SiLU")
					for i := range g {
						a.check(dst[i], ref(i), 0x1p-100+2e-6*math.Abs(ref(i)), "silu(%g)", g[i])
					}
					SiLUMul(dst, g, u)
					ad.intact(t, "SiLUMul")
					for i := range g {
						want := ref(i) * float64(u[i])
						b.check(dst[i], want, 0x1p-100*(1+math.Abs(float64(u[i])))+2e-6*math.Abs(want), "silu(%g)·%g", g[i], u[i])
					}
					first := append([]float32(nil), dst...)
					old := append([]float32(nil), g...)
					SiLUMul(g, g, u)
					wantBits(t, "SiLUMul into gate", g, first)
					SiLUMul(u, old, u)
					wantBits(t, "SiLUMul into up", u, first)
				}
			}
		}
		inf := float32(math.Inf(1))
		for n := 1; n < 40; n++ {
			x := make([]float32, n)
			for i, v := range []float32{float32(math.NaN()), inf, -inf, 0} {
				x[n-1] = v
				y := make([]float32, n)
				SiLU(y, x)
				if got := y[n-1]; i < 3 && got-got == 0 || i == 3 && got != 0 {
					t.Errorf("SiLU(%g) = %g: not finite must stay not finite", v, got)
				}
			}
		}
	})
}

// An element's exponential does not depend on where the slice ends.
func TestSiLUDoesNotDependOnPosition(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		x, y, z := make([]float32, 100), make([]float32, 100), make([]float32, 100)
		randF32(newRand(16), x, "normal")
		SiLU(y, x)
		for lo := 0; lo < len(x); lo += 7 {
			for hi := lo; hi <= len(x); hi++ {
				SiLU(z[lo:hi], x[lo:hi])
				wantBits(t, "SiLU of a part", z[lo:hi], y[lo:hi])
			}
		}
	})
}

func TestExpRefusesWrongLengths(t *testing.T) {
	x := make([]float32, 8)
	mustPanic(t, "SiLU", func() { SiLU(x[:7], x) })
	mustPanic(t, "SiLUMul dst", func() { SiLUMul(x[:7], x, x) })
	mustPanic(t, "SiLUMul up", func() { SiLUMul(x, x, x[:7]) })
}
