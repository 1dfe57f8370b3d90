package kernels

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// Conversions are exact: every level gives the same bits as x448/float16.

func TestF16ToF32AllPatterns(t *testing.T) {
	src := make([]uint16, 65536)
	for i := range src {
		src[i] = uint16(i)
	}
	eachLevel(t, func(t *testing.T) {
		dst := make([]float32, len(src))
		F16ToF32(dst, src)
		for i, h := range src {
			want := math.Float32bits(float16.Frombits(h).Float32())
			if want&0x7fffffff > 0x7f800000 {
				want |= 0x400000 // the processor's conversion quiets a NaN
			}
			if g := math.Float32bits(dst[i]); g != want {
				t.Fatalf("F16ToF32(%04x) = %08x, want %08x", h, g, want)
			}
			if g := math.Float32bits(F16Value(h)); g != want {
				t.Fatalf("F16Value(%04x) = %08x, want %08x", h, g, want)
			}
		}
	})
}

func TestBF16ToF32AllPatterns(t *testing.T) {
	src := make([]uint16, 65536)
	for i := range src {
		src[i] = uint16(i)
	}
	eachLevel(t, func(t *testing.T) {
		dst := make([]float32, len(src))
		BF16ToF32(dst, src)
		for i := range src {
			if g := math.Float32bits(dst[i]); g != uint32(i)<<16 {
				t.Fatalf("BF16ToF32(%04x) = %08x", i, g)
			}
		}
	})
}

// f32Probes are every float16 value, the middle between it and its upper
// neighbour (a tie) and the float32 next to that on both sides, all signs,
// then overflow, NaN payloads and random patterns.
func f32Probes() []float32 {
	var x []float32
	add := func(b uint32) { x = append(x, math.Float32frombits(b), math.Float32frombits(b|0x80000000)) }
	for h := uint16(0); h < 0x7c00; h++ {
		v, up := F16Value(h), float32(65536)
		if h+1 < 0x7c00 {
			up = F16Value(h + 1)
		}
		mid := math.Float32bits((v + up) / 2)
		add(math.Float32bits(v))
		add(mid - 1)
		add(mid)
		add(mid + 1)
	}
	for _, b := range []uint32{0, 1, 0x33000000, 0x33000001, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7fffff, 0x7f800000,
		0x7f800001, 0x7f801fff, 0x7fa00000, 0x7fc00000, 0x7fc02000, 0x7fffffff} {
		add(b)
	}
	r := newRand(1)
	for range 1 << 18 {
		add(r.Uint32())
	}
	return x
}

func TestF32ToF16(t *testing.T) {
	x := f32Probes()
	eachLevel(t, func(t *testing.T) {
		dst := make([]uint16, len(x))
		F32ToF16(dst, x)
		for i, f := range x {
			want := float16.Fromfloat32(f).Bits()
			if f != f { // quiet, sign and upper payload kept
				b := math.Float32bits(f)
				want = uint16(b>>16&0x8000) | 0x7e00 | uint16(b>>13&0x3ff)
			}
			if dst[i] != want || F16Bits(f) != want {
				t.Fatalf("%g (%08x): F32ToF16 %04x, F16Bits %04x, want %04x", f, math.Float32bits(f), dst[i], F16Bits(f), want)
			}
		}
	})
}

func TestConversionsStayInside(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := newRand(2)
		d, s := newArena(t), newArena(t)
		for _, n := range lengths() {
			for _, end := range []bool{false, true} {
				h := take[uint16](s, n, end)
				for i := range h {
					h[i] = uint16(r.Uint32())
				}
				f := take[float32](d, n, end)
				F16ToF32(f, h)
				d.intact(t, "F16ToF32")
				for i := range h {
					if math.Float32bits(f[i]) != math.Float32bits(F16Value(h[i])) {
						t.Fatalf("F16ToF32 n=%d: element %d", n, i)
					}
				}
				BF16ToF32(f, h)
				d.intact(t, "BF16ToF32")
				for i := range h {
					if math.Float32bits(f[i]) != uint32(h[i])<<16 {
						t.Fatalf("BF16ToF32 n=%d: element %d", n, i)
					}
				}
				f = take[float32](s, n, end)
				randF32(r, f, "special")
				h = take[uint16](d, n, end)
				F32ToF16(h, f)
				d.intact(t, "F32ToF16")
				for i := range h {
					if h[i] != F16Bits(f[i]) {
						t.Fatalf("F32ToF16 n=%d: element %d", n, i)
					}
				}
			}
		}
	})
}

func TestViews(t *testing.T) {
	u := []uint64{0x0807060504030201, 0x100f0e0d0c0b0a09}
	b := U64Bytes(u)
	if len(b) != 16 || b[0] != 1 || b[15] != 16 {
		t.Fatalf("U64Bytes = %v", b)
	}
	if h := BytesU16(b[2:6]); len(h) != 2 || h[0] != 0x0403 || &U16Bytes(h)[0] != &b[2] {
		t.Fatalf("BytesU16 = %x", h)
	}
	if v := BytesU64(b); &v[1] != &u[1] {
		t.Fatal("BytesU64 copied")
	}
	if f := BytesF32(b[4:8]); len(f) != 1 || math.Float32bits(f[0]) != 0x08070605 || &F32Bytes(f)[0] != &b[4] {
		t.Fatalf("BytesF32 = %v", f)
	}
	if BytesU16(nil) != nil || U16Bytes(nil) != nil || len(BytesU64(b[:0])) != 0 {
		t.Fatal("empty views")
	}
	mustPanic(t, "odd length", func() { BytesU16(b[:3]) })
	mustPanic(t, "misaligned", func() { BytesU16(b[1:3]) })
	mustPanic(t, "misaligned", func() { BytesF32(b[2:6]) })
	mustPanic(t, "misaligned", func() { BytesU64(b[4:12]) })
}
