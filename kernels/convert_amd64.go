//go:build !purego

package kernels

import "unsafe"

func f16ToF32(dst []float32, src []uint16) int {
	n := 0
	switch {
	case useAVX512:
		n = len(src) &^ 15
		f16ToF32AVX512(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	case useAVX2:
		n = len(src) &^ 7
		f16ToF32AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

func f32ToF16(dst []uint16, src []float32) int {
	n := 0
	switch {
	case useAVX512:
		n = len(src) &^ 15
		f32ToF16AVX512(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	case useAVX2:
		n = len(src) &^ 7
		f32ToF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

func bf16ToF32(dst []float32, src []uint16) int {
	n := 0
	switch {
	case useAVX512:
		n = len(src) &^ 15
		bf16ToF32AVX512(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	case useAVX2:
		n = len(src) &^ 7
		bf16ToF32AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	}
	return n
}

// Assembly: whole vectors only, n of them checked by the callers above.

//go:noescape
func f16ToF32AVX2(dst *float32, src *uint16, n int)

//go:noescape
func f32ToF16AVX2(dst *uint16, src *float32, n int)

//go:noescape
func bf16ToF32AVX2(dst *float32, src *uint16, n int)

//go:noescape
func f16ToF32AVX512(dst *float32, src *uint16, n int)

//go:noescape
func f32ToF16AVX512(dst *uint16, src *float32, n int)

//go:noescape
func bf16ToF32AVX512(dst *float32, src *uint16, n int)
