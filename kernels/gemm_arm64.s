//go:build !purego

#include "textflag.h"

// As gemmTileGeneric, 8 x 8: accumulators V16..V31 (row r in V(16+2r), V(17+2r)); A's columns of two
// steps in V0, V1 and V2, V3, B's rows in V4, V5 and V6, V7.

// FMLA Vd.4S, Vn.4S, Vm.S[l]: the assembler has no name for the by-element form. d += n * m[l].
#define FMLAE(d, n, m, l) WORD $(0x4F801000 | ((l)>>1)<<11 | ((l)&1)<<21 | (m)<<16 | (n)<<5 | (d))

// FADD Vd.4S, Vn.4S, Vm.4S: not in the assembler either.
#define FADD4(d, n, m) WORD $(0x4E20D400 | (m)<<16 | (n)<<5 | (d))

#define STEP8(a0, a1, b0, b1) \
	FMLAE(16, b0, a0, 0) \
	FMLAE(17, b1, a0, 0) \
	FMLAE(18, b0, a0, 1) \
	FMLAE(19, b1, a0, 1) \
	FMLAE(20, b0, a0, 2) \
	FMLAE(21, b1, a0, 2) \
	FMLAE(22, b0, a0, 3) \
	FMLAE(23, b1, a0, 3) \
	FMLAE(24, b0, a1, 0) \
	FMLAE(25, b1, a1, 0) \
	FMLAE(26, b0, a1, 1) \
	FMLAE(27, b1, a1, 1) \
	FMLAE(28, b0, a1, 2) \
	FMLAE(29, b1, a1, 2) \
	FMLAE(30, b0, a1, 3) \
	FMLAE(31, b1, a1, 3)

// func gemmTile8x8(kc int, a, b, c *float32, ldc int, add bool)
TEXT ·gemmTile8x8(SB), NOSPLIT, $0-41
	MOVD  kc+0(FP), R0
	MOVD  a+8(FP), R1
	MOVD  b+16(FP), R2
	MOVD  c+24(FP), R3
	MOVD  ldc+32(FP), R4
	MOVBU add+40(FP), R5
	LSL   $2, R4, R4
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	VEOR V19.B16, V19.B16, V19.B16
	VEOR V20.B16, V20.B16, V20.B16
	VEOR V21.B16, V21.B16, V21.B16
	VEOR V22.B16, V22.B16, V22.B16
	VEOR V23.B16, V23.B16, V23.B16
	VEOR V24.B16, V24.B16, V24.B16
	VEOR V25.B16, V25.B16, V25.B16
	VEOR V26.B16, V26.B16, V26.B16
	VEOR V27.B16, V27.B16, V27.B16
	VEOR V28.B16, V28.B16, V28.B16
	VEOR V29.B16, V29.B16, V29.B16
	VEOR V30.B16, V30.B16, V30.B16
	VEOR V31.B16, V31.B16, V31.B16
	LSR   $1, R0, R6
	CBZ   R6, tail

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	STEP8(0, 1, 4, 5)
	STEP8(2, 3, 6, 7)
	SUBS   $1, R6
	BNE    loop

tail:
	TBZ  $0, R0, store
	VLD1 (R1), [V0.S4, V1.S4]
	VLD1 (R2), [V4.S4, V5.S4]
	STEP8(0, 1, 4, 5)

store:
	CBZ R5, set
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 16)
	FADD4(1, 1, 17)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 18)
	FADD4(1, 1, 19)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 20)
	FADD4(1, 1, 21)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 22)
	FADD4(1, 1, 23)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 24)
	FADD4(1, 1, 25)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 26)
	FADD4(1, 1, 27)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 28)
	FADD4(1, 1, 29)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	VLD1 (R3), [V0.S4, V1.S4]
	FADD4(0, 0, 30)
	FADD4(1, 1, 31)
	VST1 [V0.S4, V1.S4], (R3)
	ADD  R4, R3
	RET

set:
	VST1 [V16.S4, V17.S4], (R3)
	ADD  R4, R3
	VST1 [V18.S4, V19.S4], (R3)
	ADD  R4, R3
	VST1 [V20.S4, V21.S4], (R3)
	ADD  R4, R3
	VST1 [V22.S4, V23.S4], (R3)
	ADD  R4, R3
	VST1 [V24.S4, V25.S4], (R3)
	ADD  R4, R3
	VST1 [V26.S4, V27.S4], (R3)
	ADD  R4, R3
	VST1 [V28.S4, V29.S4], (R3)
	ADD  R4, R3
	VST1 [V30.S4, V31.S4], (R3)
	ADD  R4, R3
	RET

// FCVTL Vd.4S, Vn.4H and FCVTL2 Vd.4S, Vn.8H
#define FCVTL(d, n) WORD $(0x0E217800 | (n)<<5 | (d))
#define FCVTL2(d, n) WORD $(0x4E217800 | (n)<<5 | (d))

// func packT8F32(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)
//
// Transposes 8 rows of float32: dst[k*dstStride+r] = rows[r][k]; n is a multiple of 8. ahead is not used.
TEXT ·packT8F32(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD dstStride+8(FP), R1
	MOVD rows+16(FP), R2
	MOVD n+24(FP), R3
	LSL  $2, R1, R1
	LDP  (R2), (R4, R5)
	LDP  16(R2), (R6, R7)
	LDP  32(R2), (R8, R9)
	LDP  48(R2), (R10, R11)
	LSR  $2, R3, R3
	CBZ  R3, doneF32

loopF32:
	VLD1.P 16(R4), [V0.S4]
	VLD1.P 16(R5), [V1.S4]
	VLD1.P 16(R6), [V2.S4]
	VLD1.P 16(R7), [V3.S4]
	VLD1.P 16(R8), [V4.S4]
	VLD1.P 16(R9), [V5.S4]
	VLD1.P 16(R10), [V6.S4]
	VLD1.P 16(R11), [V7.S4]
	VTRN1 V1.S4, V0.S4, V24.S4
	VTRN2 V1.S4, V0.S4, V25.S4
	VTRN1 V3.S4, V2.S4, V26.S4
	VTRN2 V3.S4, V2.S4, V27.S4
	VZIP1 V26.D2, V24.D2, V16.D2
	VZIP1 V27.D2, V25.D2, V18.D2
	VZIP2 V26.D2, V24.D2, V20.D2
	VZIP2 V27.D2, V25.D2, V22.D2
	VTRN1 V5.S4, V4.S4, V24.S4
	VTRN2 V5.S4, V4.S4, V25.S4
	VTRN1 V7.S4, V6.S4, V26.S4
	VTRN2 V7.S4, V6.S4, V27.S4
	VZIP1 V26.D2, V24.D2, V17.D2
	VZIP1 V27.D2, V25.D2, V19.D2
	VZIP2 V26.D2, V24.D2, V21.D2
	VZIP2 V27.D2, V25.D2, V23.D2
	VST1 [V16.S4, V17.S4], (R0)
	ADD  R1, R0
	VST1 [V18.S4, V19.S4], (R0)
	ADD  R1, R0
	VST1 [V20.S4, V21.S4], (R0)
	ADD  R1, R0
	VST1 [V22.S4, V23.S4], (R0)
	ADD  R1, R0
	SUBS $1, R3
	BNE  loopF32

doneF32:
	RET

// func packT8F16(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)
//
// Transposes 8 rows of float16, converted: dst[k*dstStride+r] = rows[r][k]; n is a multiple of 8. ahead is not used.
TEXT ·packT8F16(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD dstStride+8(FP), R1
	MOVD rows+16(FP), R2
	MOVD n+24(FP), R3
	LSL  $2, R1, R1
	LDP  (R2), (R4, R5)
	LDP  16(R2), (R6, R7)
	LDP  32(R2), (R8, R9)
	LDP  48(R2), (R10, R11)
	LSR  $2, R3, R3
	CBZ  R3, doneF16

loopF16:
	VLD1.P 8(R4), [V0.H4]
	VLD1.P 8(R5), [V1.H4]
	VLD1.P 8(R6), [V2.H4]
	VLD1.P 8(R7), [V3.H4]
	VLD1.P 8(R8), [V4.H4]
	VLD1.P 8(R9), [V5.H4]
	VLD1.P 8(R10), [V6.H4]
	VLD1.P 8(R11), [V7.H4]
	FCVTL(0, 0)
	FCVTL(1, 1)
	FCVTL(2, 2)
	FCVTL(3, 3)
	FCVTL(4, 4)
	FCVTL(5, 5)
	FCVTL(6, 6)
	FCVTL(7, 7)
	VTRN1 V1.S4, V0.S4, V24.S4
	VTRN2 V1.S4, V0.S4, V25.S4
	VTRN1 V3.S4, V2.S4, V26.S4
	VTRN2 V3.S4, V2.S4, V27.S4
	VZIP1 V26.D2, V24.D2, V16.D2
	VZIP1 V27.D2, V25.D2, V18.D2
	VZIP2 V26.D2, V24.D2, V20.D2
	VZIP2 V27.D2, V25.D2, V22.D2
	VTRN1 V5.S4, V4.S4, V24.S4
	VTRN2 V5.S4, V4.S4, V25.S4
	VTRN1 V7.S4, V6.S4, V26.S4
	VTRN2 V7.S4, V6.S4, V27.S4
	VZIP1 V26.D2, V24.D2, V17.D2
	VZIP1 V27.D2, V25.D2, V19.D2
	VZIP2 V26.D2, V24.D2, V21.D2
	VZIP2 V27.D2, V25.D2, V23.D2
	VST1 [V16.S4, V17.S4], (R0)
	ADD  R1, R0
	VST1 [V18.S4, V19.S4], (R0)
	ADD  R1, R0
	VST1 [V20.S4, V21.S4], (R0)
	ADD  R1, R0
	VST1 [V22.S4, V23.S4], (R0)
	ADD  R1, R0
	SUBS $1, R3
	BNE  loopF16

doneF16:
	RET

// func packN8F32(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)
//
// Copies n runs of float32 into panels: for p < panels, j < 8*groups,
// dst[p*panelStride+k*width+j] = src[k*srcStride+p*width+j], k ascending.
TEXT ·packN8F32(SB), NOSPLIT, $0-64
	MOVD dst+0(FP), R0
	MOVD panelStride+8(FP), R1
	MOVD src+16(FP), R2
	MOVD srcStride+24(FP), R3
	MOVD panels+32(FP), R4
	MOVD groups+40(FP), R5
	MOVD width+48(FP), R6
	MOVD n+56(FP), R7
	LSL  $2, R1, R1
	LSL  $2, R3, R3

runF32:
	MOVD R2, R8
	MOVD R0, R10
	MOVD R4, R11

panelF32:
	MOVD R8, R9
	MOVD R10, R12
	MOVD R5, R13

groupF32:
	VLD1.P 32(R9), [V0.S4, V1.S4]
	VST1.P [V0.S4, V1.S4], 32(R12)
	SUBS $1, R13
	BNE  groupF32
	ADD  R6<<2, R8
	ADD  R1, R10
	SUBS $1, R11
	BNE  panelF32
	ADD  R3, R2
	ADD  R6<<2, R0
	SUBS $1, R7
	BNE  runF32
	RET

// func packN8F16(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)
//
// Copies n runs of float16, converted, into panels: for p < panels, j < 8*groups,
// dst[p*panelStride+k*width+j] = src[k*srcStride+p*width+j], k ascending.
TEXT ·packN8F16(SB), NOSPLIT, $0-64
	MOVD dst+0(FP), R0
	MOVD panelStride+8(FP), R1
	MOVD src+16(FP), R2
	MOVD srcStride+24(FP), R3
	MOVD panels+32(FP), R4
	MOVD groups+40(FP), R5
	MOVD width+48(FP), R6
	MOVD n+56(FP), R7
	LSL  $2, R1, R1
	LSL  $1, R3, R3

runF16:
	MOVD R2, R8
	MOVD R0, R10
	MOVD R4, R11

panelF16:
	MOVD R8, R9
	MOVD R10, R12
	MOVD R5, R13

groupF16:
	VLD1.P 16(R9), [V2.H8]
	FCVTL(0, 2)
	FCVTL2(1, 2)
	VST1.P [V0.S4, V1.S4], 32(R12)
	SUBS $1, R13
	BNE  groupF16
	ADD  R6<<1, R8
	ADD  R1, R10
	SUBS $1, R11
	BNE  panelF16
	ADD  R3, R2
	ADD  R6<<2, R0
	SUBS $1, R7
	BNE  runF16
	RET
