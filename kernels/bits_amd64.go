//go:build !purego

package kernels

import "unsafe"

func hammingRows(dst []int32, q, table []uint64) {
	switch {
	case len(dst) == 0:
	case useVPOPCNT:
		hammingRowsAVX512(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
	case useAVX2:
		if n := len(dst) &^ 3; n > 0 && len(q) > 0 && len(q)%4 == 0 {
			hammingRows4AVX2(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), n/4, len(q)/4)
			dst, table = dst[n:], table[n*len(q):]
		}
		if len(dst) > 0 {
			hammingRowsAVX2(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
		}
	default:
		hammingRowsGeneric(dst, q, table)
	}
}

// maskWords does the whole words of MaskAtLeast and returns how many.
func maskWords(mask []uint64, x []float32, threshold uint16) int {
	n := len(x) / 64
	if !useAVX2 || n == 0 {
		return 0
	}
	maskAVX2(unsafe.SliceData(mask), unsafe.SliceData(x), n, threshold)
	return n
}

// Assembly: at least one row, group, vector or word of mask.

//go:noescape
func hammingRowsAVX2(dst *int32, q, table *uint64, rows, words int)

//go:noescape
func hammingRows4AVX2(dst *int32, q, table *uint64, groups, vectors int)

//go:noescape
func hammingRowsAVX512(dst *int32, q, table *uint64, rows, words int)

//go:noescape
func maskAVX2(mask *uint64, x *float32, words int, threshold uint16)
