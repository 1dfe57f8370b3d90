package kernels

// Q4Group is how many elements of a row share a scale.
const Q4Group = 32

// A row of 4-bit codes is groups of Q4Group elements in Q4Group/2 bytes: byte j has element j of the group in its low
// half and element Q4Group/2 + j in its high half, each as the code plus 8. Every group has a float16 scale.

// GemvQ4 sets dst[r] = Σ_g scales[r][g] · Σ_{i in g} code[r][i]·x[i] for every r of dst, on the calling goroutine.
// len(x) is a multiple of Q4Group; codes is (len(dst), len(x)/2), scales (len(dst), len(x)/Q4Group).
func GemvQ4(dst, x []float32, codes []byte, scales []uint16) {
	rows, n := len(dst), len(x)
	groups := n / Q4Group
	check(n%Q4Group == 0 && len(codes) == rows*n/2 && len(scales) == rows*groups, "GemvQ4")
	if n == 0 || rows == 0 {
		clear(dst)
		return
	}
	gemvQ4(dst, x, codes, scales)
}

// PackQ4 writes a row of codes, each −8..7, as GemvQ4 reads it. len(codes) is a multiple of Q4Group.
func PackQ4(dst []byte, codes []int8) {
	check(len(codes)%Q4Group == 0 && len(dst) == len(codes)/2, "PackQ4")
	const half = Q4Group / 2
	for g := 0; g < len(codes); g += Q4Group {
		for j := range half {
			dst[g/2+j] = byte(codes[g+j]+8)&15 | byte(codes[g+half+j]+8)<<4
		}
	}
}
