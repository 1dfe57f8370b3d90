//go:build !purego

package kernels

import "unsafe"

func dotF16(x []float32, w []uint16) float32 {
	switch {
	case useNEON:
		return dotF16NEON(unsafe.SliceData(x), unsafe.SliceData(w), len(x))
	}
	return dotF16Generic(x, w)
}

func dotF32(x, y []float32) float32 {
	switch {
	case useNEON:
		return dotF32NEON(unsafe.SliceData(x), unsafe.SliceData(y), len(x))
	}
	return dotF32Generic(x, y)
}

func dot4F16(out *[4]float32, x []float32, w, next *[4][]uint16) {
	switch {
	case useNEON:
		dot4F16NEON(out, unsafe.SliceData(x), w, next, len(x), split(len(x)))
	default:
		dot4F16Generic(out, x, w)
	}
}

func dot8F16(out *[8]float32, x []float32, w, next *[8][]uint16) {
	if !useNEON {
		dot8F16Generic(out, x, w)
		return
	}
	for k := 0; k < 8; k += 4 {
		dot4F16NEON((*[4]float32)(out[k:]), unsafe.SliceData(x), (*[4][]uint16)(w[k:]), (*[4][]uint16)(next[k:]), len(x), split(len(x)))
	}
}

// Assembly, any n.

//go:noescape
func dotF16NEON(x *float32, w *uint16, n int) float32

//go:noescape
func dotF32NEON(x, y *float32, n int) float32

//go:noescape
func dot4F16NEON(out *[4]float32, x *float32, w, next *[4][]uint16, n, split int)
