//go:build !purego

package kernels

import "unsafe"

func gemvQ4I8(dst []float32, x *Q8, codes []byte, scales []uint16) {
	if useAVX2 {
		gemvQ4I8AVX2(unsafe.SliceData(dst), len(dst), unsafe.SliceData(x.codes), unsafe.SliceData(x.bias), unsafe.SliceData(x.scales), unsafe.SliceData(codes), unsafe.SliceData(scales), len(x.scales))
		return
	}
	gemvQ4I8Generic(dst, x, codes, scales)
}

// Assembly, rows and groups ≥ 1.

//go:noescape
func gemvQ4I8AVX2(dst *float32, rows int, x *int8, bias *int32, xscales *float32, codes *byte, scales *uint16, groups int)
