//go:build !purego

package kernels

import "unsafe"

func dotF16(x []float32, w []uint16) float32 {
	switch {
	case useAVX512:
		return dotF16AVX512(unsafe.SliceData(x), unsafe.SliceData(w), len(x))
	case useAVX2:
		return dotF16AVX2(unsafe.SliceData(x), unsafe.SliceData(w), len(x))
	}
	return dotF16Generic(x, w)
}

func dotF32(x, y []float32) float32 {
	switch {
	case useAVX512:
		return dotF32AVX512(unsafe.SliceData(x), unsafe.SliceData(y), len(x))
	case useAVX2:
		return dotF32AVX2(unsafe.SliceData(x), unsafe.SliceData(y), len(x))
	}
	return dotF32Generic(x, y)
}

func dot4F16(out *[4]float32, x []float32, w, next *[4][]uint16) {
	switch {
	case useAVX512:
		dot4F16AVX512(out, unsafe.SliceData(x), w, next, len(x), split(len(x)))
	case useAVX2:
		dot4F16AVX2(out, unsafe.SliceData(x), w, next, len(x), split(len(x)))
	default:
		dot4F16Generic(out, x, w)
	}
}

func dot8F16(out *[8]float32, x []float32, w, next *[8][]uint16) {
	if useAVX2 {
		dot8F16AVX2(out, unsafe.SliceData(x), w, next, len(x))
		return
	}
	dot8F16Generic(out, x, w)
}

// Assembly, any n.

//go:noescape
func dotF16AVX2(x *float32, w *uint16, n int) float32

//go:noescape
func dotF32AVX2(x, y *float32, n int) float32

//go:noescape
func dot4F16AVX2(out *[4]float32, x *float32, w, next *[4][]uint16, n, split int)

//go:noescape
func dot8F16AVX2(out *[8]float32, x *float32, w, next *[8][]uint16, n int)

//go:noescape
func dotF16AVX512(x *float32, w *uint16, n int) float32

//go:noescape
func dotF32AVX512(x, y *float32, n int) float32

//go:noescape
func dot4F16AVX512(out *[4]float32, x *float32, w, next *[4][]uint16, n, split int)
