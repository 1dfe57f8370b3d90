//go:build !purego

package kernels

import "unsafe"

func hammingRows(dst []int32, q, table []uint64) {
	switch {
	case len(dst) == 0:
	case useNEON:
		hammingRowsNEON(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(table), len(dst), len(q))
	default:
		hammingRowsGeneric(dst, q, table)
	}
}

// maskWords has no version here; MaskAtLeast's own loop does everything.
func maskWords(mask []uint64, x []float32, threshold uint16) int { return 0 }

// Assembly: at least one row, any number of words.

//go:noescape
func hammingRowsNEON(dst *int32, q, table *uint64, rows, words int)
