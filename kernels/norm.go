package kernels

import "math"

// RMSNorm sets dst = x / sqrt(mean(x²) + eps) · weight. A nil weight stands
// for ones; dst may be x. len(dst) = len(x) = len(weight).
func RMSNorm(dst, x, weight []float32, eps float32) {
	check(len(dst) == len(x) && (weight == nil || len(weight) == len(x)), "RMSNorm")
	if len(x) == 0 {
		return
	}
	mean := float64(dotF32(x, x)) / float64(len(x))
	scale := float32(1 / math.Sqrt(mean+float64(eps)))
	n := mulScale(dst, x, weight, scale)
	if weight == nil {
		for i := n; i < len(x); i++ {
			dst[i] = x[i] * scale
		}
		return
	}
	for i := n; i < len(x); i++ {
		dst[i] = float32(x[i]*scale) * weight[i]
	}
}

// RoPE turns the pairs (head[i], head[i+half]) by the angles whose cosine and
// sine are given: the layout of Hugging Face's Llama. len(cos) = len(sin) =
// half = len(head)/2.
func RoPE(head []float32, cos, sin []float32) {
	half := len(head) / 2
	check(len(head) == 2*half && len(cos) == half && len(sin) == half, "RoPE")
	n := rope(head, cos, sin)
	for i := n; i < half; i++ {
		a, b := head[i], head[i+half]
		head[i] = float32(a*cos[i]) - float32(b*sin[i])
		head[i+half] = float32(b*cos[i]) + float32(a*sin[i])
	}
}

// MaxIndex is the index of the greatest value, the lowest one where several
// are equal. A NaN never wins; without any number above −Inf it is 0, and −1
// for an empty slice.
func MaxIndex(x []float32) int {
	if len(x) == 0 {
		return -1
	}
	const block = 512 // one pass for the block, one scan inside the best block
	best, at := float32(math.Inf(-1)), -1
	for lo := 0; lo < len(x); lo += block {
		if m := maxF32(x[lo:min(lo+block, len(x))]); m > best {
			best, at = m, lo
		}
	}
	if at < 0 {
		return 0
	}
	for x[at] != best {
		at++
	}
	return at
}
