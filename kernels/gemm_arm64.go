//go:build !purego

package kernels

import "unsafe"

// gemmNEON: 8 x 8, sixteen of 32 registers accumulate, multiply-adds take A's elements by lane.
var gemmNEON = gemmKernel{mr: 8, nr: 8, tile: gemmTile8x8,
	transF32: packT8F32, transF16: packT8F16, copyF32: packN8F32, copyF16: packN8F16}

func gemmKernelNow() *gemmKernel {
	if Level() == "neon" {
		return &gemmNEON
	}
	return &gemmGeneric
}

//go:noescape
func gemmTile8x8(kc int, a, b, c *float32, ldc int, add bool)

//go:noescape
func packT8F32(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)

//go:noescape
func packT8F16(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)

//go:noescape
func packN8F32(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)

//go:noescape
func packN8F16(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)
