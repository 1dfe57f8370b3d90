package kernels

import (
	"fmt"
	"math"
	"testing"
)

// The lookahead predictor's shapes; the time of GemvQ4I8 includes rounding x.
func BenchmarkGemvQ4I8(b *testing.B) {
	for _, n := range []int{256, 4096} {
		rows := 1 << 20 / n
		dst, x, q8 := make([]float32, rows), benchF32(n), NewQ8(n)
		codes, scales := make([]byte, rows*n/2), make([]uint16, rows*n/Q4Group)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(codes) + 2*len(scales)))
			for b.Loop() {
				q8.Set(x)
				GemvQ4I8(dst, q8, codes, scales)
			}
		})
	}
}

// Set rounds every element within half of its group's scale, and what is not finite stays so.
func TestQ8(t *testing.T) {
	r := newRand(42)
	for _, n := range []int{0, 32, 96, 576} {
		for _, kind := range kinds {
			x := make([]float32, n)
			randF32(r, x, kind)
			v := NewQ8(n)
			v.Set(x)
			for i, f := range x {
				g := i / Q4Group
				scale := float64(v.scales[g])
				switch in := x[g*Q4Group:][:Q4Group]; {
				case !finite(in):
					if !math.IsNaN(scale) || v.codes[i] != 0 {
						t.Fatalf("%s: scale %g, code %d in a group that is not finite", kind, scale, v.codes[i])
					}
				case kind == "tiny":
					if scale != 0 || v.codes[i] != 0 {
						t.Fatalf("tiny: scale %g, code %d", scale, v.codes[i])
					}
				default:
					if d := math.Abs(scale*float64(v.codes[i]) - float64(f)); d > scale*(0.5+0x1p-15) {
						t.Fatalf("n=%d %s: %g became %g · %d", n, kind, f, scale, v.codes[i])
					}
				}
			}
			for j, b := range v.bias {
				sum := int32(0)
				for _, c := range v.codes[4*j : 4*j+4] {
					sum += int32(c)
				}
				if b != 8*sum {
					t.Fatalf("bias %d is %d, want %d", j, b, 8*sum)
				}
			}
		}
	}
	ties := make([]float32, 32) // scale 2: to nearest, ties to even
	copy(ties, []float32{254, 1, 3, 5, -1, -3, 0.9, -253})
	v := NewQ8(32)
	v.Set(ties)
	for i, want := range []int8{127, 0, 2, 2, 0, -2, 0, -126} {
		if v.codes[i] != want || v.scales[0] != 2 {
			t.Errorf("%g became %g · %d, want %d", ties[i], v.scales[0], v.codes[i], want)
		}
	}
	mustPanic(t, "Q8.Set", func() { v.Set(ties[:31]) })
	mustPanic(t, "NewQ8", func() { NewQ8(33) })
}

func finite(x []float32) bool {
	for _, f := range x {
		if f-f != 0 {
			return false
		}
	}
	return true
}

// Every level computes the sum that GemvQ4I8 states, to the bit, and that sum is near the product with the rounded x.
func TestGemvQ4I8(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		a := allow(t, "GemvQ4I8")
		r := newRand(43)
		ad, ac, as := newArena(t), newArena(t), newArena(t)
		for _, n := range []int{0, 32, 64, 224, 256, 288, 544, 576, 4096} {
			for rows := range 4 {
				for _, kind := range kinds {
					end := rows%2 == 0
					dst, x := take[float32](ad, rows, end), make([]float32, n)
					codes, scales := take[byte](ac, rows*n/2, end), take[uint16](as, rows*n/Q4Group, !end)
					randF32(r, x, kind)
					if n >= 32 && kind == "normal" { // the largest sums: all codes −8 or 7, all x at ±127
						for i := range 32 {
							x[i] = float32(3 - 6*(i/4%2))
						}
					}
					for i := range codes {
						codes[i] = byte(r.Uint32())
						if i < 16 && kind == "normal" {
							codes[i] = []byte{0x00, 0xff}[i/4%2]
						}
					}
					for i := range scales {
						scales[i] = F16Bits(float32(r.NormFloat64()))
					}
					v := NewQ8(n)
					v.Set(x)
					GemvQ4I8(dst, v, codes, scales)
					ad.intact(t, "GemvQ4I8")
					for i := range dst {
						want := plainQ4I8(v, codes[i*n/2:(i+1)*n/2], scales[i*n/Q4Group:(i+1)*n/Q4Group])
						wantBits(t, fmt.Sprintf("GemvQ4I8 n=%d row %d %s", n, i, kind), dst[i:i+1], []float32{want})
						var ref, abs float64
						for e := range n {
							b := codes[i*n/2+e/32*16+e%16]
							p := float64(int(b>>(e%32/16*4)&15)-8) * float64(F16Value(scales[i*n/32+e/32])) * float64(v.scales[e/32]) * float64(v.codes[e])
							ref, abs = ref+p, abs+math.Abs(p)
						}
						a.check(dst[i], ref, 0x1p-140+0x1p-18*abs, "n=%d row %d %s", n, i, kind)
					}
				}
			}
		}
	})
	v := NewQ8(32)
	mustPanic(t, "GemvQ4I8 codes", func() { GemvQ4I8(make([]float32, 1), v, make([]byte, 15), make([]uint16, 1)) })
	mustPanic(t, "GemvQ4I8 scales", func() { GemvQ4I8(make([]float32, 1), v, make([]byte, 16), nil) })
}

// plainQ4I8 is the sum as GemvQ4I8's comment has it, with the fused multiply-add by way of arbitrary precision.
func plainQ4I8(v *Q8, codes []byte, scales []uint16) float32 {
	var lane [8]float32
	for g, s := range scales {
		factor := float32(F16Value(s) * v.scales[g]) // rounded, whatever follows
		for l := range lane {
			p := 0
			for e := 4 * l; e < 4*l+4; e++ {
				c := codes[g*16+e%16]
				if e >= 16 {
					c >>= 4
				}
				p += int(v.codes[g*32+e]) * (int(c&15) - 8)
			}
			if factor-factor != 0 {
				lane[l] = factor
				continue
			}
			if lane[l]-lane[l] == 0 {
				lane[l] = fmaBig(float32(p), factor, lane[l])
			}
		}
	}
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
}
