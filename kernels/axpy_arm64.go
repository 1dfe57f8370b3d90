//go:build !purego

package kernels

import "unsafe"

func axpyF32(y []float32, a float32, x []float32) {
	switch {
	case useNEON:
		axpyF32NEON(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	default:
		axpyF32Generic(y, a, x)
	}
}

func axpyF16(y []float32, a float32, w []uint16) {
	switch {
	case useNEON:
		axpyF16NEON(unsafe.SliceData(y), unsafe.SliceData(w), len(y), a)
	default:
		axpyF16Generic(y, a, w)
	}
}

func axpy8F16(y []float32, a *[8]float32, w, next *[8][]uint16) {
	if !useNEON {
		axpy8F16Generic(y, a, w)
		return
	}
	for k := 0; k < 8; k += 4 {
		axpy4F16NEON(unsafe.SliceData(y), (*[4]float32)(a[k:]), (*[4][]uint16)(w[k:]), (*[4][]uint16)(next[k:]), len(y), split(len(y)))
	}
}

// Assembly, any n.

//go:noescape
func axpyF32NEON(y, x *float32, n int, a float32)

//go:noescape
func axpyF16NEON(y *float32, w *uint16, n int, a float32)

//go:noescape
func axpy4F16NEON(y *float32, a *[4]float32, w, next *[4][]uint16, n, split int)
