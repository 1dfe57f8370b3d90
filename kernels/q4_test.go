package kernels

import (
	"math"
	"testing"
)

// TestGemvQ4 holds every level against float64: |got − ref| ≤ 2^-140 + 2^-18·Σ|scale·code·x|, as for DotF16. Not finite
// where ref is not.
func TestGemvQ4(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "GemvQ4")
		r := newRand(41)
		ad, ax, ac, as := newArena(t), newArena(t), newArena(t), newArena(t)
		for _, n := range []int{32, 64, 96, 128, 256, 576, 1024, 4096} {
			for rows := range 7 {
				for _, kind := range kinds {
					end := rows%2 == 0
					dst, x := take[float32](ad, rows, end), take[float32](ax, n, !end)
					codes, scales := take[byte](ac, rows*n/2, end), take[uint16](as, rows*n/Q4Group, end)
					randF32(r, x, kind)
					for i := range scales {
						scales[i] = F16Bits(float32(r.NormFloat64()))
					}
					all := make([]int8, rows*n)
					for i := range all {
						all[i] = int8(r.IntN(16) - 8)
					}
					for i := range rows {
						PackQ4(codes[i*n/2:(i+1)*n/2], all[i*n:(i+1)*n])
					}
					GemvQ4(dst, x, codes, scales)
					for i := range dst {
						ref, limit := dotRef(x, func(j int) float64 {
							return float64(all[i*n+j]) * float64(F16Value(scales[(i*n+j)/Q4Group]))
						})
						a.check(dst[i], ref, limit, "n=%d rows=%d %s", n, rows, kind)
					}
					ad.intact(t, "dst")
				}
			}
		}
		mustPanic(t, "odd length", func() { GemvQ4(make([]float32, 1), make([]float32, 48), make([]byte, 24), make([]uint16, 1)) })
		mustPanic(t, "short codes", func() { GemvQ4(make([]float32, 2), make([]float32, 32), make([]byte, 16), make([]uint16, 2)) })
		dst := []float32{float32(math.NaN()), 1}
		GemvQ4(dst, nil, nil, nil)
		if dst[0] != 0 || dst[1] != 0 {
			t.Errorf("no columns: %v", dst)
		}
	})
}

func BenchmarkGemvQ4(b *testing.B) {
	const rows, n = 1536, 256
	dst, x := make([]float32, rows), make([]float32, n)
	codes, scales := make([]byte, rows*n/2), make([]uint16, rows*n/Q4Group)
	b.SetBytes(int64(len(codes) + 2*len(scales)))
	for b.Loop() {
		GemvQ4(dst, x, codes, scales)
	}
}
