//go:build !purego

package kernels

// gemmNEON: 8 x 8, sixteen of 32 registers accumulate, multiply-adds take A's elements by lane.
var gemmNEON = gemmKernel{mr: 8, nr: 8, tile: gemmTile8x8}

func gemmKernelNow() *gemmKernel {
	if Level() == "neon" {
		return &gemmNEON
	}
	return &gemmGeneric
}

//go:noescape
func gemmTile8x8(kc int, a, b, c *float32, ldc int, add bool)
