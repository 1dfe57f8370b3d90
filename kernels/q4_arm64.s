//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// func dotQ4I8NEON(x *int8, xscales *float32, codes *byte, scales *uint16, groups int) float32
//
// As the generic version, to the bit: lanes 0 to 3 are V0, 4 to 7 are V1.
TEXT ·dotQ4I8NEON(SB), NOSPLIT, $0-44
	MOVD x+0(FP), R0
	MOVD xscales+8(FP), R4
	MOVD codes+16(FP), R1
	MOVD scales+24(FP), R2
	MOVD groups+32(FP), R3
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VMOVI $15, V30.B16
	VMOVI $8, V31.B16

group:
	VLD1.P 16(R1), [V4.B16]
	VLD1.P 32(R0), [V6.B16, V7.B16]
	VUSHR $4, V4.B16, V5.B16
	VAND V30.B16, V4.B16, V4.B16
	VSUB V31.B16, V4.B16, V4.B16
	VSUB V31.B16, V5.B16, V5.B16
	SMULL8(16, 4, 6)
	SMULL8H(17, 4, 6)
	SMULL8(18, 5, 7)
	SMULL8H(19, 5, 7)
	SADDLP4(16, 16)
	SADDLP4(17, 17)
	SADDLP4(18, 18)
	SADDLP4(19, 19)
	VADDP V17.S4, V16.S4, V16.S4
	VADDP V19.S4, V18.S4, V18.S4
	SCVTF4(16, 16)
	SCVTF4(18, 18)
	MOVHU.P 2(R2), R5
	FMOVS R5, F2
	FCVTHS F2, F2
	FMOVS.P 4(R4), F3
	FMULS F3, F2, F2
	VDUP V2.S[0], V2.S4
	VFMLA V2.S4, V16.S4, V0.S4
	VFMLA V2.S4, V18.S4, V1.S4
	SUBS $1, R3, R3
	BNE  group

	FADD4(0, 0, 1)
	VEXT $8, V0.B16, V0.B16, V1.B16
	FADD4(0, 0, 1)
	FADDP4(0, 0, 0)
	FMOVS F0, ret+40(FP)
	RET
