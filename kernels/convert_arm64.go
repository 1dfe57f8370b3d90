//go:build !purego

package kernels

import "unsafe"

func f16ToF32(dst []float32, src []uint16) int {
	n := 0
	switch {
	case useNEON:
		n = len(src) &^ 7
		f16ToF32NEON(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

func f32ToF16(dst []uint16, src []float32) int {
	n := 0
	switch {
	case useNEON:
		n = len(src) &^ 7
		f32ToF16NEON(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

func bf16ToF32(dst []float32, src []uint16) int {
	n := 0
	switch {
	case useNEON:
		n = len(src) &^ 7
		bf16ToF32NEON(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

// Assembly: whole vectors only, n of them checked by the callers above.

//go:noescape
func f16ToF32NEON(dst *float32, src *uint16, n int)

//go:noescape
func f32ToF16NEON(dst *uint16, src *float32, n int)

//go:noescape
func bf16ToF32NEON(dst *float32, src *uint16, n int)
