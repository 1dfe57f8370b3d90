//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// As the generic versions, to the bit: one fused multiply-add per element,
// in the tail too.

// func axpyF16NEON(y *float32, w *uint16, n int, a float32)
TEXT ·axpyF16NEON(SB), NOSPLIT, $0-28
	MOVD y+0(FP), R0
	MOVD w+8(FP), R1
	MOVD n+16(FP), R2
	FMOVS a+24(FP), F0
	VDUP V0.S[0], V1.S4
	SUBS $8, R2, R2
	BLT  few

eight:
	VLD1 (R0), [V2.S4, V3.S4]
	VLD1.P 16(R1), [V6.H8]
	FCVTL(4, 6)
	FCVTL2(5, 6)
	VFMLA V4.S4, V1.S4, V2.S4
	VFMLA V5.S4, V1.S4, V3.S4
	VST1.P [V2.S4, V3.S4], 32(R0)
	SUBS $8, R2, R2
	BGE  eight

few:
	ADDS $8, R2, R2
	BEQ  done

tail:
	MOVHU.P 2(R1), R5
	FMOVS R5, F4
	FCVTHS F4, F4
	FMOVS (R0), F2
	FMADDS F4, F2, F0, F2
	FMOVS.P F2, 4(R0)
	SUBS $1, R2, R2
	BNE  tail

done:
	RET

// func axpyF32NEON(y, x *float32, n int, a float32)
TEXT ·axpyF32NEON(SB), NOSPLIT, $0-28
	MOVD y+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R2
	FMOVS a+24(FP), F0
	VDUP V0.S[0], V1.S4
	SUBS $8, R2, R2
	BLT  few

eight:
	VLD1 (R0), [V2.S4, V3.S4]
	VLD1.P 32(R1), [V4.S4, V5.S4]
	VFMLA V4.S4, V1.S4, V2.S4
	VFMLA V5.S4, V1.S4, V3.S4
	VST1.P [V2.S4, V3.S4], 32(R0)
	SUBS $8, R2, R2
	BGE  eight

few:
	ADDS $8, R2, R2
	BEQ  done

tail:
	FMOVS.P 4(R1), F4
	FMOVS (R0), F2
	FMADDS F4, F2, F0, F2
	FMOVS.P F2, 4(R0)
	SUBS $1, R2, R2
	BNE  tail

done:
	RET

// func axpy4F16NEON(y *float32, a *[4]float32, w, next *[4][]uint16, n, split int)
//
// The four products are added one after the other. split and next say what to
// prefetch, as in dot4F16NEON.
TEXT ·axpy4F16NEON(SB), NOSPLIT, $0-48
	MOVD y+0(FP), R0
	MOVD a+8(FP), R1
	MOVD w+16(FP), R7
	MOVD 0(R7), R8
	MOVD 24(R7), R9
	MOVD 48(R7), R10
	MOVD 72(R7), R11
	MOVD n+32(FP), R2
	MOVD split+40(FP), R4
	SUB  R4, R2, R6
	ADD  R6<<1, R8, R12
	ADD  R6<<1, R9, R13
	ADD  R6<<1, R10, R14
	ADD  R6<<1, R11, R15
	VLD1 (R1), [V4.S4]
	VDUP V4.S[0], V0.S4
	VDUP V4.S[1], V1.S4
	VDUP V4.S[2], V2.S4
	VDUP V4.S[3], V3.S4

eight:
	SUBS $8, R2, R2
	BLT  few
	CBNZ R4, ahead
	MOVD next+24(FP), R7
	MOVD 0(R7), R12
	MOVD 24(R7), R13
	MOVD 48(R7), R14
	MOVD 72(R7), R15

ahead:
	SUB  $8, R4, R4
	VLD1 (R0), [V4.S4, V5.S4]
	VLD1.P 16(R8), [V20.H8]
	VLD1.P 16(R9), [V21.H8]
	VLD1.P 16(R10), [V22.H8]
	VLD1.P 16(R11), [V23.H8]
	PRFM (R12), PLDL1KEEP
	PRFM (R13), PLDL1KEEP
	PRFM (R14), PLDL1KEEP
	PRFM (R15), PLDL1KEEP
	ADD  $16, R12, R12
	ADD  $16, R13, R13
	ADD  $16, R14, R14
	ADD  $16, R15, R15
	FCVTL(6, 20)
	FCVTL2(7, 20)
	VFMLA V6.S4, V0.S4, V4.S4
	VFMLA V7.S4, V0.S4, V5.S4
	FCVTL(6, 21)
	FCVTL2(7, 21)
	VFMLA V6.S4, V1.S4, V4.S4
	VFMLA V7.S4, V1.S4, V5.S4
	FCVTL(6, 22)
	FCVTL2(7, 22)
	VFMLA V6.S4, V2.S4, V4.S4
	VFMLA V7.S4, V2.S4, V5.S4
	FCVTL(6, 23)
	FCVTL2(7, 23)
	VFMLA V6.S4, V3.S4, V4.S4
	VFMLA V7.S4, V3.S4, V5.S4
	VST1.P [V4.S4, V5.S4], 32(R0)
	B    eight

few:
	ADDS $8, R2, R2
	BEQ  done

tail:
	FMOVS (R0), F4
	MOVHU.P 2(R8), R5
	FMOVS R5, F6
	FCVTHS F6, F6
	FMADDS F6, F4, F0, F4
	MOVHU.P 2(R9), R5
	FMOVS R5, F6
	FCVTHS F6, F6
	FMADDS F6, F4, F1, F4
	MOVHU.P 2(R10), R5
	FMOVS R5, F6
	FCVTHS F6, F6
	FMADDS F6, F4, F2, F4
	MOVHU.P 2(R11), R5
	FMOVS R5, F6
	FCVTHS F6, F6
	FMADDS F6, F4, F3, F4
	FMOVS.P F4, 4(R0)
	SUBS $1, R2, R2
	BNE  tail

done:
	RET
