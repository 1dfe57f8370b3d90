//go:build purego || !amd64

package kernels

// No version of its own: the exported functions go eight rows at a time.

func scoresF16(dst, q []float32, k []uint16, stride int, scale float32) int { return 0 }
func weightedF16(y, p []float32, v []uint16, stride int) int                { return 0 }
