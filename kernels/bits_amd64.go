//go:build !purego

package kernels

import "unsafe"

func hammingRows(dst []int32, q, table []uint64) {
	if len(dst) == 0 {
		return
	}
	switch {
	case useVPOPCNT:
		hammingRowsAVX512(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
	case useAVX2:
		hammingRowsAVX2(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
	default:
		hammingRowsGeneric(dst, q, table)
	}
}

// Assembly: at least one row, any number of words.

//go:noescape
func hammingRowsAVX2(dst *int32, q, table *uint64, rows, words int)

//go:noescape
func hammingRowsAVX512(dst *int32, q, table *uint64, rows, words int)
