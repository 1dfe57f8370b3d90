//go:build !purego

package kernels

import "unsafe"

// gemmAVX2 needs AVX2, FMA and F16C. 6 x 16: twelve of sixteen registers accumulate, and two 8-lane multiply-adds a
// cycle (Haswell, Zen 2 and later) are fed by two loads and six broadcasts per twelve of them.
var gemmAVX2 = gemmKernel{mr: 6, nr: 16, tile: gemmTile6x16,
	transF32: packT8F32, transF16: packT8F16, copyF32: packN8F32, copyF16: packN8F16}

// gemmAVX512 needs AVX512F beside that. 12 x 32: 24 of 32 registers accumulate (Skylake-SP, Ice Lake, Zen 4 and later).
var gemmAVX512 = gemmKernel{mr: 12, nr: 32, tile: gemmTile12x32,
	transF32: packT8F32, transF16: packT8F16, copyF32: packN8F32, copyF16: packN8F16}

func gemmKernelNow() *gemmKernel {
	switch Level() {
	case "avx512":
		return &gemmAVX512
	case "avx2":
		return &gemmAVX2
	}
	return &gemmGeneric
}

//go:noescape
func gemmTile6x16(kc int, a, b, c *float32, ldc int, add bool)

//go:noescape
func gemmTile12x32(kc int, a, b, c *float32, ldc int, add bool)

//go:noescape
func packT8F32(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)

//go:noescape
func packT8F16(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)

//go:noescape
func packN8F32(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)

//go:noescape
func packN8F16(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)
