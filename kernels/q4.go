package kernels

// Q4Group is how many elements of a row share a scale.
const Q4Group = 32

// A row of 4-bit codes is groups of Q4Group elements in Q4Group/2 bytes: byte j has element j of the group in its low
// half and element Q4Group/2 + j in its high half, each as the code plus 8. Every group has a float16 scale.

// PackQ4 writes a row of codes, each −8..7, as GemvQ4I8 reads it. len(codes) is a multiple of Q4Group.
func PackQ4(dst []byte, codes []int8) {
	check(len(codes)%Q4Group == 0 && len(dst) == len(codes)/2, "PackQ4")
	const half = Q4Group / 2
	for g := 0; g < len(codes); g += Q4Group {
		for j := range half {
			dst[g/2+j] = byte(codes[g+j]+8)&15 | byte(codes[g+half+j]+8)<<4
		}
	}
}
