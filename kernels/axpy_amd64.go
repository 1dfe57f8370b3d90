//go:build !purego

package kernels

import "unsafe"

func axpyF32(y []float32, a float32, x []float32) {
	switch {
	case useAVX512:
		axpyF32AVX512(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	case useAVX2:
		axpyF32AVX2(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	default:
		axpyF32Generic(y, a, x)
	}
}

func axpyF16(y []float32, a float32, w []uint16) {
	switch {
	case useAVX512:
		axpyF16AVX512(unsafe.SliceData(y), unsafe.SliceData(w), len(y), a)
	case useAVX2:
		axpyF16AVX2(unsafe.SliceData(y), unsafe.SliceData(w), len(y), a)
	default:
		axpyF16Generic(y, a, w)
	}
}

func axpy8F16(y []float32, a *[8]float32, w, next *[8][]uint16) {
	if useAVX2 {
		axpy8F16AVX2(unsafe.SliceData(y), a, w, next, len(y))
		return
	}
	axpy8F16Generic(y, a, w)
}

// Assembly, any n.

//go:noescape
func axpyF32AVX2(y, x *float32, n int, a float32)

//go:noescape
func axpyF16AVX2(y *float32, w *uint16, n int, a float32)

//go:noescape
func axpy8F16AVX2(y *float32, a *[8]float32, w, next *[8][]uint16, n int)

//go:noescape
func axpyF32AVX512(y, x *float32, n int, a float32)

//go:noescape
func axpyF16AVX512(y *float32, w *uint16, n int, a float32)
