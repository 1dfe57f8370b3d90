//go:build !purego

#include "textflag.h"

// func mulScaleAVX2(dst, x, weight *float32, n int, scale float32)
//
// dst = x · scale · weight, without weight if it is nil; n is a multiple of 8.
TEXT ·mulScaleAVX2(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ weight+16(FP), DX
	MOVQ n+24(FP), CX
	VBROADCASTSS scale+32(FP), Y0
	XORQ BX, BX
	TESTQ DX, DX
	JZ   plain

weighted:
	SUBQ $8, CX
	JLT  done
	VMULPS (SI)(BX*1), Y0, Y1
	VMULPS (DX)(BX*1), Y1, Y1
	VMOVUPS Y1, (DI)(BX*1)
	ADDQ $32, BX
	JMP  weighted

plain:
	SUBQ $8, CX
	JLT  done
	VMULPS (SI)(BX*1), Y0, Y1
	VMOVUPS Y1, (DI)(BX*1)
	ADDQ $32, BX
	JMP  plain

done:
	VZEROUPPER
	RET

// func ropeAVX2(lo, hi, cos, sin *float32, n int)
//
// lo, hi = lo·cos − hi·sin, hi·cos + lo·sin; n is a multiple of 8.
TEXT ·ropeAVX2(SB), NOSPLIT, $0-40
	MOVQ lo+0(FP), DI
	MOVQ hi+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), CX
	XORQ BX, BX

loop:
	SUBQ $8, CX
	JLT  done
	VMOVUPS (DI)(BX*1), Y0
	VMOVUPS (SI)(BX*1), Y1
	VMOVUPS (R8)(BX*1), Y2
	VMOVUPS (R9)(BX*1), Y3
	VMULPS Y2, Y0, Y4
	VMULPS Y3, Y1, Y5
	VSUBPS Y5, Y4, Y4
	VMULPS Y2, Y1, Y5
	VMULPS Y3, Y0, Y6
	VADDPS Y6, Y5, Y5
	VMOVUPS Y4, (DI)(BX*1)
	VMOVUPS Y5, (SI)(BX*1)
	ADDQ $32, BX
	JMP  loop

done:
	VZEROUPPER
	RET

// func maxF32AVX2(x *float32, n int) float32
//
// n is a multiple of 8 and not 0. Where one operand is NaN, VMAXPS returns the
// first as Go writes it: the accumulator.
TEXT ·maxF32AVX2(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0xff800000, AX // −Inf
	VMOVD AX, X0
	VBROADCASTSS X0, Y0

loop:
	VMOVUPS (SI), Y1
	VMAXPS Y0, Y1, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ  loop

	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VMAXPS X1, X0, X0
	VMOVSHDUP X0, X1
	VMAXSS X1, X0, X0
	VZEROUPPER
	MOVSS X0, ret+16(FP)
	RET

// func mulScaleAVX512(dst, x, weight *float32, n int, scale float32)
//
// dst = x · scale · weight, without weight if it is nil; n is a multiple of 16.
TEXT ·mulScaleAVX512(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ weight+16(FP), DX
	MOVQ n+24(FP), CX
	VBROADCASTSS scale+32(FP), Z0
	XORQ BX, BX
	TESTQ DX, DX
	JZ   plain

weighted:
	SUBQ $16, CX
	JLT  done
	VMULPS (SI)(BX*1), Z0, Z1
	VMULPS (DX)(BX*1), Z1, Z1
	VMOVUPS Z1, (DI)(BX*1)
	ADDQ $64, BX
	JMP  weighted

plain:
	SUBQ $16, CX
	JLT  done
	VMULPS (SI)(BX*1), Z0, Z1
	VMOVUPS Z1, (DI)(BX*1)
	ADDQ $64, BX
	JMP  plain

done:
	VZEROUPPER
	RET

// func ropeAVX512(lo, hi, cos, sin *float32, n int)
//
// lo, hi = lo·cos − hi·sin, hi·cos + lo·sin; n is a multiple of 16.
TEXT ·ropeAVX512(SB), NOSPLIT, $0-40
	MOVQ lo+0(FP), DI
	MOVQ hi+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), CX
	XORQ BX, BX

loop:
	SUBQ $16, CX
	JLT  done
	VMOVUPS (DI)(BX*1), Z0
	VMOVUPS (SI)(BX*1), Z1
	VMOVUPS (R8)(BX*1), Z2
	VMOVUPS (R9)(BX*1), Z3
	VMULPS Z2, Z0, Z4
	VMULPS Z3, Z1, Z5
	VSUBPS Z5, Z4, Z4
	VMULPS Z2, Z1, Z5
	VMULPS Z3, Z0, Z6
	VADDPS Z6, Z5, Z5
	VMOVUPS Z4, (DI)(BX*1)
	VMOVUPS Z5, (SI)(BX*1)
	ADDQ $64, BX
	JMP  loop

done:
	VZEROUPPER
	RET

// func maxF32AVX512(x *float32, n int) float32
//
// n is a multiple of 16 and not 0. Where one operand is NaN, VMAXPS returns the
// first as Go writes it: the accumulator.
TEXT ·maxF32AVX512(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0xff800000, AX // −Inf
	VMOVD AX, X0
	VBROADCASTSS X0, Z0

loop:
	VMOVUPS (SI), Z1
	VMAXPS Z0, Z1, Z0
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ  loop

	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VMAXPS X1, X0, X0
	VMOVSHDUP X0, X1
	VMAXSS X1, X0, X0
	VZEROUPPER
	MOVSS X0, ret+16(FP)
	RET
