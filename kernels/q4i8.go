package kernels

import "math"

// A Q8 is a vector rounded to 8 bits for GemvQ4I8: per group of Q4Group elements a scale, and codes −127..127 so that
// x ≈ scale·code within half a scale.
type Q8 struct {
	codes  []int8
	scales []float32
	bias   []int32 // 8 × the sums of each four codes: what GemvQ4I8's codes, stored plus 8, are too large by
}

// NewQ8 makes room for n elements, a multiple of Q4Group.
func NewQ8(n int) *Q8 {
	check(n%Q4Group == 0, "NewQ8")
	return &Q8{codes: make([]int8, n), scales: make([]float32, n/Q4Group), bias: make([]int32, n/4)}
}

// Resize makes v as long as n, a multiple of Q4Group and at most what NewQ8 made room for. Set comes next.
func (v *Q8) Resize(n int) {
	check(n%Q4Group == 0 && n <= cap(v.codes), "Q8.Resize")
	v.codes, v.scales, v.bias = v.codes[:n], v.scales[:n/Q4Group], v.bias[:n/4]
}

// smallestQ8 is the magnitude below which a group counts as zero, so that no intermediate result overflows.
const smallestQ8 = 0x1p-100

// Set rounds x, which is as long as v: to nearest, ties to even. The scale of a group is its largest magnitude
// / 127, or NaN where an element is not finite. The same on every level.
func (v *Q8) Set(x []float32) {
	check(len(x) == len(v.codes), "Q8.Set")
	for g := range v.scales {
		in, codes, bias := x[g*Q4Group:][:Q4Group], v.codes[g*Q4Group:][:Q4Group], v.bias[g*Q4Group/4:][:Q4Group/4]
		var most uint32 // bits of magnitudes compare as the magnitudes do, with Inf and NaN on top
		for _, f := range in {
			most = max(most, math.Float32bits(f)&0x7fffffff)
		}
		if largest := math.Float32frombits(most); !(largest >= smallestQ8 && most < 0x7f800000) {
			clear(codes)
			clear(bias)
			v.scales[g] = 0
			if most >= 0x7f800000 {
				v.scales[g] = float32(math.NaN())
			}
			continue
		}
		scale := math.Float32frombits(most) / 127
		inverse := 1 / scale
		v.scales[g] = scale
		for j := range bias {
			sum := int32(0)
			for i := 4 * j; i < 4*j+4; i++ {
				// Added to 1.5·2^23 a float32 is rounded to an integer, which then stands in its low bits.
				c := int32(math.Float32bits(float32(in[i]*inverse)+0x1.8p23)) - 0x4b400000
				c = min(max(c, -127), 127)
				codes[i] = int8(c)
				sum += c
			}
			bias[j] = 8 * sum
		}
	}
}

// GemvQ4I8 sets dst[r] = Σ_g scales[r][g] · Σ_{i in g} code[r][i]·x[i] for every r of dst, on the calling goroutine, x
// rounded to 8 bits: sums of integers, exact, and per group one float32 factor. codes is (len(dst), n/2), scales
// (len(dst), n/Q4Group), n the length of x. Every level on every machine gives the same bits: of a row, the elements 4l to 4l+3 of
// group g are summed as integers into p, and lane[l] = fma(p, scales[g]·x.scale[g], lane[l]), g ascending; the result is
// ((lane 0+4)+(lane 2+6)) + ((lane 1+5)+(lane 3+7)).
func GemvQ4I8(dst []float32, x *Q8, codes []byte, scales []uint16) {
	rows, n := len(dst), len(x.codes)
	groups := n / Q4Group
	check(len(codes) == rows*n/2 && len(scales) == rows*groups, "GemvQ4I8")
	if n == 0 || rows == 0 {
		clear(dst)
		return
	}
	gemvQ4I8(dst, x, codes, scales)
}

func gemvQ4I8Generic(dst []float32, x *Q8, codes []byte, scales []uint16) {
	groups := len(x.scales)
	for r := range dst {
		dst[r] = dotQ4I8Generic(x, codes[r*groups*Q4Group/2:], scales[r*groups:][:groups])
	}
}

func dotQ4I8Generic(x *Q8, codes []byte, scales []uint16) float32 {
	const half = Q4Group / 2
	var lane [8]float32
	for g, s := range scales {
		in, b := x.codes[g*Q4Group:][:Q4Group], codes[g*half:][:half]
		factor := float32(F16Value(s) * x.scales[g])
		var part [8]int32
		for j, v := range b {
			part[j/4] += int32(in[j]) * (int32(v&15) - 8)
			part[4+j/4] += int32(in[half+j]) * (int32(v>>4) - 8)
		}
		for l, p := range part {
			lane[l] = fma32(float32(p), factor, lane[l])
		}
	}
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
}
