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

// func axpy4F16NEON(y *float32, a *[4]float32, w0, w1, w2, w3 *uint16, n int)
//
// The four products are added one after the other.
TEXT ·axpy4F16NEON(SB), NOSPLIT, $0-56
	MOVD y+0(FP), R0
	MOVD a+8(FP), R1
	MOVD w0+16(FP), R8
	MOVD w1+24(FP), R9
	MOVD w2+32(FP), R10
	MOVD w3+40(FP), R11
	MOVD n+48(FP), R2
	VLD1 (R1), [V4.S4]
	VDUP V4.S[0], V0.S4
	VDUP V4.S[1], V1.S4
	VDUP V4.S[2], V2.S4
	VDUP V4.S[3], V3.S4
	SUBS $8, R2, R2
	BLT  few

eight:
	VLD1 (R0), [V4.S4, V5.S4]
	VLD1.P 16(R8), [V20.H8]
	VLD1.P 16(R9), [V21.H8]
	VLD1.P 16(R10), [V22.H8]
	VLD1.P 16(R11), [V23.H8]
	PRFM 512(R8), PLDL1KEEP
	PRFM 512(R9), PLDL1KEEP
	PRFM 512(R10), PLDL1KEEP
	PRFM 512(R11), PLDL1KEEP
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
	SUBS $8, R2, R2
	BGE  eight

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
