package kernels

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

// Bit and integer kernels are exact; the references look at one bit at a time.

func randWords(r *rand.Rand, w []uint64, round int) {
	for i := range w {
		switch w[i] = r.Uint64(); round % 4 {
		case 1:
			w[i] = 0
		case 2:
			w[i] = math.MaxUint64
		case 3:
			w[i] &= r.Uint64() & r.Uint64()
		}
	}
}

func TestBits(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(17)
		ad, aa, ab := newArena(t), newArena(t), newArena(t)
		for _, n := range append(lengths()[:66], 127, 128, 129, 224, 255, 256, 257, 513) {
			for round := range 8 {
				end := round%2 == 0
				d, a, b := take[uint64](ad, n, end), take[uint64](aa, n, end), take[uint64](ab, n, end)
				randWords(r, a, round)
				randWords(r, b, round/2+1)
				var count, both, differ int
				for i := range n * 64 {
					x, y := a[i/64]>>(i%64)&1, b[i/64]>>(i%64)&1
					count += int(x)
					both += int(x & y)
					differ += int(x ^ y)
				}
				if g := Popcount(a); g != count {
					t.Fatalf("n=%d: Popcount %d, want %d", n, g, count)
				}
				if g := AndCount(a, b); g != both {
					t.Fatalf("n=%d: AndCount %d, want %d", n, g, both)
				}
				if g := Hamming(a, b); g != differ {
					t.Fatalf("n=%d: Hamming %d, want %d", n, g, differ)
				}
				And(d, a, b)
				ad.intact(t, "And")
				if Popcount(d) != both || AndCount(d, a) != both || AndCount(d, b) != both {
					t.Fatalf("n=%d: And", n)
				}
				AndNot(d, a, b)
				ad.intact(t, "AndNot")
				if Popcount(d) != count-both || AndCount(d, a) != count-both || AndCount(d, b) != 0 {
					t.Fatalf("n=%d: AndNot", n)
				}
			}
		}
	})
}

func TestHammingRows(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(18)
		ad, aq, at := newArena(t), newArena(t), newArena(t)
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 23, 24, 25, 31, 32, 120, 124, 125, 128, 224, 248, 252, 256, 500} {
			for rows := range 7 {
				for round := range 4 {
					end := round%2 == 0
					dst, q, table := take[int32](ad, rows, end), take[uint64](aq, n, end), take[uint64](at, rows*n, end)
					randWords(r, q, round)
					randWords(r, table, (round+1)%3)
					HammingRows(dst, q, table)
					ad.intact(t, "HammingRows")
					for i := range dst {
						want := 0
						for j := range q {
							want += bits.OnesCount64(q[j] ^ table[i*n+j])
						}
						if int(dst[i]) != want {
							t.Fatalf("n=%d rows=%d row %d: %d, want %d", n, rows, i, dst[i], want)
						}
					}
				}
			}
		}
	})
}

func TestCountMagnitudes(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(19)
		counts, want := make([]uint64, 32768), make([]uint64, 32768)
		for _, n := range append(lengths(), 511, 512, 513, 5000) {
			x := make([]float32, n)
			randF32(r, x, kinds[n%len(kinds)])
			if n > 3 {
				x[1], x[2] = 1e6, -65520 // finite, but beyond float16
			}
			bad := 0
			for _, v := range x {
				if v-v != 0 {
					bad++
				}
				if v != v {
					want[0x7e00|math.Float32bits(v)>>13&0x3ff]++
					continue
				}
				want[float16.Fromfloat32(float32(math.Abs(float64(v)))).Bits()]++
			}
			if got := CountMagnitudes(counts, x); got != bad {
				t.Fatalf("n=%d: %d not finite, want %d", n, got, bad)
			}
		}
		for i := range counts {
			if counts[i] != want[i] {
				t.Fatalf("counts[%04x] = %d, want %d", i, counts[i], want[i])
			}
		}
	})
}

func TestMaskAtLeast(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(20)
		thresholds := []float32{0, -1, 0x1p-24, 0.5, 1, F16Value(0x3801), 65504, float32(math.Inf(1)), float32(math.NaN())}
		for _, n := range append(lengths(), 1535, 1536) {
			for k, th := range thresholds {
				x := make([]float32, n)
				randF32(r, x, kinds[(n+k)%len(kinds)])
				for i := range x {
					switch r.IntN(6) { // at the threshold and just around it
					case 0:
						x[i] = th
					case 1:
						x[i] = -math.Nextafter32(th, 0)
					case 2:
						x[i] = th * (1 - 0x1p-12)
					case 3:
						x[i] = 1e9
					}
				}
				mask := make([]uint64, (n+63)/64)
				randWords(r, mask, 0)
				MaskAtLeast(mask, x, th)
				for i := range len(mask) * 64 {
					want := i < n && float16.Fromfloat32(float32(math.Abs(float64(x[i])))).Float32() >= th
					if got := mask[i/64]>>(i%64)&1 == 1; got != want {
						t.Fatalf("n=%d threshold %g: bit %d is %v", n, th, i, got)
					}
				}
			}
		}
	})
}

func TestBitsRefuseWrongLengths(t *testing.T) {
	a := make([]uint64, 8)
	mustPanic(t, "And", func() { And(a, a, a[:7]) })
	mustPanic(t, "AndNot", func() { AndNot(a[:7], a, a) })
	mustPanic(t, "AndCount", func() { AndCount(a, a[:7]) })
	mustPanic(t, "Hamming", func() { Hamming(a[:7], a) })
	mustPanic(t, "HammingRows", func() { HammingRows(make([]int32, 3), a[:2], a) })
	mustPanic(t, "CountMagnitudes", func() { CountMagnitudes(a, nil) })
	mustPanic(t, "MaskAtLeast", func() { MaskAtLeast(a, make([]float32, 64), 1) })
}
