//go:build !purego

package kernels

import (
	"math"
	"unsafe"
)

// The assembly does whole vectors; what is left goes through one padded vector,
// so that an element's result does not depend on where the slice ends.
const expPad = 8

func expSum(dst, x []float32, m float32) float32 {
	if level == "generic" {
		return expSumGeneric(dst, x, m)
	}
	n := len(x) &^ (expPad - 1)
	sum := expSumVec(dst[:n], x[:n], m)
	if n == len(x) {
		return sum
	}
	var pad [expPad]float32
	for i := copy(pad[:], x[n:]); i < expPad; i++ {
		pad[i] = float32(math.Inf(-1))
	}
	sum += expSumVec(pad[:], pad[:], m)
	copy(dst[n:], pad[:])
	return sum
}

func siluMul(dst, gate, up []float32) {
	if level == "generic" {
		siluMulGeneric(dst, gate, up)
		return
	}
	n := len(gate) &^ (expPad - 1)
	siluMulVec(dst[:n], gate[:n], up[:n])
	if n == len(gate) {
		return
	}
	var g, u [expPad]float32
	copy(g[:], gate[n:])
	copy(u[:], up[n:])
	siluMulVec(g[:], g[:], u[:])
	copy(dst[n:], g[:])
}

func expSumVec(dst, x []float32, m float32) float32 {
	return expSumNEON(unsafe.SliceData(dst), unsafe.SliceData(x), len(x), m)
}

func siluMulVec(dst, gate, up []float32) {
	siluMulNEON(unsafe.SliceData(dst), unsafe.SliceData(gate), unsafe.SliceData(up), len(gate))
}

// Assembly: whole vectors only.

//go:noescape
func expSumNEON(dst, x *float32, n int, m float32) float32

//go:noescape
func siluMulNEON(dst, gate, up *float32, n int)
