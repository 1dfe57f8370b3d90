//go:build !purego

package kernels

import (
	"math"
	"unsafe"
)

func mulScale(dst, x, weight []float32, scale float32) int {
	n := 0
	switch {
	case useAVX512:
		n = len(x) &^ 15
		mulScaleAVX512(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(weight), n, scale)
	case useAVX2:
		n = len(x) &^ 7
		mulScaleAVX2(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(weight), n, scale)
	}
	return n
}

func rope(head, cos, sin []float32) int {
	n, half := 0, len(cos)
	switch {
	case useAVX512:
		n = half &^ 15
		ropeAVX512(unsafe.SliceData(head), unsafe.SliceData(head[half:]), unsafe.SliceData(cos), unsafe.SliceData(sin), n)
	case useAVX2:
		n = half &^ 7
		ropeAVX2(unsafe.SliceData(head), unsafe.SliceData(head[half:]), unsafe.SliceData(cos), unsafe.SliceData(sin), n)
	}
	return n
}

func maxF32(x []float32) float32 {
	n, m := 0, float32(math.Inf(-1))
	switch {
	case useAVX512 && len(x) >= 16:
		n = len(x) &^ 15
		m = maxF32AVX512(unsafe.SliceData(x), n)
	case useAVX2 && len(x) >= 8:
		n = len(x) &^ 7
		m = maxF32AVX2(unsafe.SliceData(x), n)
	}
	return max(m, maxF32Generic(x[n:]))
}

// Assembly: whole vectors only.

//go:noescape
func mulScaleAVX2(dst, x, weight *float32, n int, scale float32)

//go:noescape
func ropeAVX2(lo, hi, cos, sin *float32, n int)

//go:noescape
func maxF32AVX2(x *float32, n int) float32

//go:noescape
func mulScaleAVX512(dst, x, weight *float32, n int, scale float32)

//go:noescape
func ropeAVX512(lo, hi, cos, sin *float32, n int)

//go:noescape
func maxF32AVX512(x *float32, n int) float32
