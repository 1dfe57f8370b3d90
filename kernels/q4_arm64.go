//go:build !purego

package kernels

import "unsafe"

func gemvQ4I8(dst []float32, x *Q8, codes []byte, scales []uint16) {
	if !useNEON {
		gemvQ4I8Generic(dst, x, codes, scales)
		return
	}
	groups := len(x.scales)
	for r := range dst {
		dst[r] = dotQ4I8NEON(unsafe.SliceData(x.codes), unsafe.SliceData(x.scales), &codes[r*groups*Q4Group/2], &scales[r*groups], groups)
	}
}

// Assembly, groups ≥ 1.

//go:noescape
func dotQ4I8NEON(x *int8, xscales *float32, codes *byte, scales *uint16, groups int) float32
