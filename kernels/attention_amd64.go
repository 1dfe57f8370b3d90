//go:build !purego

package kernels

import "unsafe"

func scoresF16(dst, q []float32, k []uint16, stride int, scale float32) int {
	n, rows := len(q), len(dst)
	if !useAVX2 || rows < 8 || n == 0 || n%32 != 0 {
		return 0
	}
	scores8F16AVX2(unsafe.SliceData(dst), unsafe.SliceData(q), unsafe.SliceData(k), 2*stride, rowsAhead(n)*2*stride, n, rows/8, scale)
	if rows%8 != 0 { // the last eight rows, some of them again
		r := rows - 8
		scores8F16AVX2(&dst[r], unsafe.SliceData(q), &k[r*stride], 2*stride, 0, n, 1, scale)
	}
	return rows
}

func weightedF16(y, p []float32, v []uint16, stride int) int {
	n, rows := len(y), len(p)&^7
	if !useAVX2 || rows == 0 || n == 0 || n%32 != 0 {
		return 0
	}
	weighted8F16AVX2(unsafe.SliceData(y), unsafe.SliceData(p), unsafe.SliceData(v), 2*stride, rowsAhead(n)*2*stride, n, rows/8)
	return rows
}

// Assembly: n a multiple of 32 and groups of eight rows, both ≥ 1; stride and ahead in bytes.

//go:noescape
func scores8F16AVX2(dst, q *float32, k *uint16, stride, ahead, n, groups int, scale float32)

//go:noescape
func weighted8F16AVX2(y, p *float32, v *uint16, stride, ahead, n, groups int)
