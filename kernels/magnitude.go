package kernels

import "math"

// f16Inf is the bit pattern of float16 infinity; greater magnitudes are NaN.
const f16Inf = 0x7c00

// CountMagnitudes does counts[F16Bits(|x[i]|)]++ for every i: a histogram at
// float16 resolution, whose parts add up. len(counts) = 32768. It returns how
// many x are not finite; those are counted too, from counts[0x7c00] upwards,
// where finite values beyond float16's range also go (0x7c00).
func CountMagnitudes(counts []uint64, x []float32) (nonFinite int) {
	check(len(counts) == 32768, "CountMagnitudes")
	c := (*[32768]uint64)(counts)
	var buf [512]uint16
	for len(x) > 0 {
		n := min(len(x), len(buf))
		F32ToF16(buf[:n], x[:n])
		for i, h := range buf[:n] {
			h &= 0x7fff
			c[h]++
			if h >= f16Inf && math.Float32bits(x[i])&0x7f800000 == 0x7f800000 {
				nonFinite++
			}
		}
		x = x[n:]
	}
	return nonFinite
}

// MaskAtLeast sets bit n of mask where float16(|x[n]|) ≥ threshold, a value
// that float16 holds exactly; NaN is never set. len(mask) = ⌈len(x)/64⌉; the
// bits beyond len(x) become 0.
func MaskAtLeast(mask []uint64, x []float32, threshold float32) {
	check(len(mask) == (len(x)+63)/64, "MaskAtLeast")
	if threshold != threshold {
		clear(mask)
		return
	}
	bits := F16Bits(max(threshold, 0)) // bit patterns order as the magnitudes do
	done := maskWords(mask, x, bits)
	mask, x = mask[done:], x[64*done:]
	t := uint32(bits)
	var buf [64]uint16
	for w := range mask {
		n := min(len(x), 64)
		F32ToF16(buf[:n], x[:n])
		var m uint64
		for i, h := range buf[:n] {
			b := uint32(h & 0x7fff)
			below := (b - t) >> 31 // 1 if b < t
			nan := (f16Inf - b) >> 31
			m |= uint64((below|nan)^1) << i
		}
		mask[w] = m
		x = x[n:]
	}
}
