//go:build !purego

package kernels

import "unsafe"

func hammingRows(dst []int32, q, table []uint64) {
	if len(dst) == 0 {
		return
	}
	switch {
	case useNEON:
		hammingRowsNEON(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
	default:
		hammingRowsGeneric(dst, q, table)
	}
}

// Assembly: at least one row, any number of words.

//go:noescape
func hammingRowsNEON(dst *int32, q, table *uint64, rows, words int)
