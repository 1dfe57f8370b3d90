package kernels

import "math"

// F16Value is the number that a float16 bit pattern stands for. A signalling
// NaN comes out quiet, as from the processor's own conversion.
func F16Value(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag > 0x7c00:
		return math.Float32frombits(sign | 0x7fc00000 | mag<<13)
	case mag == 0x7c00:
		return math.Float32frombits(sign | 0x7f800000)
	}
	// Exponent and fraction moved into place are the value times 2^-112, for
	// subnormals too; the product is exact.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(mag<<13)*0x1p112))
}

// F16Bits is the float16 nearest to f, ties to even; overflow gives an
// infinity, NaN keeps its sign and upper payload and becomes quiet.
func F16Bits(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x47800000: // 65536 and more
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: adding 0.5 rounds at float16's last subnormal place
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1 // round to nearest even; a carry may reach infinity, rightly
	return sign | uint16((b-0x38000000)>>13)
}

func f16ToF32Generic(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = F16Value(h)
	}
}

func f32ToF16Generic(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = F16Bits(f)
	}
}

func bf16ToF32Generic(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}
