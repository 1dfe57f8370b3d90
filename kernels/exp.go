package kernels

import "math"

// expBlock is how many exponentials are summed in float32 before the sum goes
// to float64: long rows (a vocabulary) keep their accuracy.
const expBlock = 1024

// Softmax turns x into exp(x − max) / Σ exp(x − max), in place.
func Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	m := maxF32(x)
	var sum float64
	for lo := 0; lo < len(x); lo += expBlock {
		b := x[lo:min(lo+expBlock, len(x))]
		sum += float64(expSum(b, b, m))
	}
	scale := float32(1 / sum)
	for i := mulScale(x, x, nil, scale); i < len(x); i++ {
		x[i] *= scale
	}
}

// LogSumExp is log Σ exp(x), −Inf for an empty slice.
func LogSumExp(x []float32) float32 {
	if len(x) == 0 {
		return float32(math.Inf(-1))
	}
	m := maxF32(x)
	var buf [expBlock]float32
	var sum float64
	for lo := 0; lo < len(x); lo += expBlock {
		b := x[lo:min(lo+expBlock, len(x))]
		sum += float64(expSum(buf[:len(b)], b, m))
	}
	return float32(float64(m) + math.Log(sum))
}

// SiLU sets dst = x / (1 + exp(−x)). dst may be x.
func SiLU(dst, x []float32) {
	check(len(dst) == len(x), "SiLU")
	for lo := 0; lo < len(x); lo += len(ones) {
		hi := min(lo+len(ones), len(x))
		siluMul(dst[lo:hi], x[lo:hi], ones[:hi-lo])
	}
}

// SiLUMul sets dst = gate / (1 + exp(−gate)) · up. dst may be gate or up.
func SiLUMul(dst, gate, up []float32) {
	check(len(dst) == len(gate) && len(up) == len(gate), "SiLUMul")
	siluMul(dst, gate, up)
}

// ones lets SiLU use SiLUMul's kernel: a product with 1 changes nothing.
var ones = func() (o [256]float32) {
	for i := range o {
		o[i] = 1
	}
	return
}()
