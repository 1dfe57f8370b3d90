package gguf

import (
	"encoding/binary"
	"math"
)

// The block formats of ggml, one function each: dst holds as many values as src's whole blocks. A product is rounded to float32 before it is added to
// (the explicit conversions forbid fusing), so the values are those of the reference on every architecture.

// half decodes a float16 bit pattern.
func half(b []byte) float32 {
	h := uint32(binary.LittleEndian.Uint16(b))
	sign, exp, frac := h>>15<<31, h>>10&0x1f, h&0x3ff
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	f := float32(frac) * (1.0 / (1 << 24)) // subnormal: exact in float32
	return math.Float32frombits(sign | math.Float32bits(f))
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[i*4:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(src[i*2:])
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[i*2:])) << 16)
	}
}

// Q8_0: scale f16, 32 signed bytes.
func decodeQ80(dst []float32, src []byte) {
	for len(dst) >= 32 {
		d, q, x := half(src), src[2:34], dst[:32]
		for i := range x {
			x[i] = d * float32(int8(q[i]))
		}
		dst, src = dst[32:], src[34:]
	}
}

// Q4_0: scale f16, 16 bytes; the low nibbles are values 0–15, the high ones 16–31, offset 8.
func decodeQ40(dst []float32, src []byte) {
	for len(dst) >= 32 {
		d, q, x := half(src), src[2:18], dst[:32]
		for i, b := range q {
			x[i] = d * float32(int(b&15)-8)
			x[i+16] = d * float32(int(b>>4)-8)
		}
		dst, src = dst[32:], src[18:]
	}
}

// Q4_1: scale f16, minimum f16, 16 bytes of nibbles as in Q4_0.
func decodeQ41(dst []float32, src []byte) {
	for len(dst) >= 32 {
		d, m, q, x := half(src), half(src[2:]), src[4:20], dst[:32]
		for i, b := range q {
			x[i] = float32(d*float32(b&15)) + m
			x[i+16] = float32(d*float32(b>>4)) + m
		}
		dst, src = dst[32:], src[20:]
	}
}

// Q5_0: scale f16, 32 fifth bits, 16 bytes of nibbles; offset 16.
func decodeQ50(dst []float32, src []byte) {
	for len(dst) >= 32 {
		d, h, q, x := half(src), binary.LittleEndian.Uint32(src[2:]), src[6:22], dst[:32]
		for i, b := range q {
			x[i] = d * float32(int(uint32(b&15)|h>>i&1<<4)-16)
			x[i+16] = d * float32(int(uint32(b>>4)|h>>(i+16)&1<<4)-16)
		}
		dst, src = dst[32:], src[22:]
	}
}

// Q5_1: scale f16, minimum f16, 32 fifth bits, 16 bytes of nibbles.
func decodeQ51(dst []float32, src []byte) {
	for len(dst) >= 32 {
		d, m, h, q, x := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:]), src[8:24], dst[:32]
		for i, b := range q {
			x[i] = float32(d*float32(uint32(b&15)|h>>i&1<<4)) + m
			x[i+16] = float32(d*float32(uint32(b>>4)|h>>(i+16)&1<<4)) + m
		}
		dst, src = dst[32:], src[24:]
	}
}
