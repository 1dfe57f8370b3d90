//go:build !purego

package kernels

import (
	"math"
	"unsafe"
)

func mulScale(dst, x, weight []float32, scale float32) int {
	n := 0
	switch {
	case useNEON:
		n = len(x) &^ 7
		mulScaleNEON(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(weight), n, scale)
	}
	return n
}

func rope(head, cos, sin []float32) int {
	n, half := 0, len(cos)
	switch {
	case useNEON:
		n = half &^ 7
		ropeNEON(unsafe.SliceData(head), unsafe.SliceData(head[half:]), unsafe.SliceData(cos), unsafe.SliceData(sin), n)
	}
	return n
}

func maxF32(x []float32) float32 {
	n, m := 0, float32(math.Inf(-1))
	switch {
	case useNEON && len(x) >= 8:
		n = len(x) &^ 7
		m = maxF32NEON(unsafe.SliceData(x), n)
	}
	return max(m, maxF32Generic(x[n:]))
}

// Assembly: whole vectors only.

//go:noescape
func mulScaleNEON(dst, x, weight *float32, n int, scale float32)

//go:noescape
func ropeNEON(lo, hi, cos, sin *float32, n int)

//go:noescape
func maxF32NEON(x *float32, n int) float32
