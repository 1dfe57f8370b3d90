//go:build purego || !(amd64 || arm64)

package kernels

func fastLevels() []string { return nil }

func hasVPOPCNT() bool { return false }

// Functions that return int did that many leading elements; the exported
// function finishes. Without assembly they do nothing.

func f16ToF32(dst []float32, src []uint16) int  { return 0 }
func f32ToF16(dst []uint16, src []float32) int  { return 0 }
func bf16ToF32(dst []float32, src []uint16) int { return 0 }

func dotF16(x []float32, w []uint16) float32 { return dotF16Generic(x, w) }
func dotF32(x, y []float32) float32          { return dotF32Generic(x, y) }
func dot4F16(out *[4]float32, x []float32, w, _ *[4][]uint16) {
	dot4F16Generic(out, x, w)
}
func dot8F16(out *[8]float32, x []float32, w, _ *[8][]uint16) {
	dot8F16Generic(out, x, w)
}

func gemvQ4I8(dst []float32, x *Q8, codes []byte, scales []uint16) {
	gemvQ4I8Generic(dst, x, codes, scales)
}

func axpyF32(y []float32, a float32, x []float32) { axpyF32Generic(y, a, x) }
func axpyF16(y []float32, a float32, w []uint16)  { axpyF16Generic(y, a, w) }
func axpy8F16(y []float32, a *[8]float32, w, _ *[8][]uint16) {
	axpy8F16Generic(y, a, w)
}

func mulScale(dst, x, weight []float32, scale float32) int { return 0 }
func rope(head, cos, sin []float32) int                    { return 0 }
func maxF32(x []float32) float32                           { return maxF32Generic(x) }

func expSum(dst, x []float32, m float32) float32 { return expSumGeneric(dst, x, m) }
func siluMul(dst, gate, up []float32)            { siluMulGeneric(dst, gate, up) }

func hammingRows(dst []int32, q, table []uint64) { hammingRowsGeneric(dst, q, table) }

func maskWords(mask []uint64, x []float32, threshold uint16) int { return 0 }
