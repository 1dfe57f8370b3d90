//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// As the generic versions, to the bit.

// func f16ToF32NEON(dst *float32, src *uint16, n int): n is a multiple of 8.
TEXT ·f16ToF32NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	SUBS $8, R2, R2
	BLT  done
	VLD1.P 16(R1), [V0.H8]
	FCVTL(1, 0)
	FCVTL2(2, 0)
	VST1.P [V1.S4, V2.S4], 32(R0)
	B    loop

done:
	RET

// func f32ToF16NEON(dst *uint16, src *float32, n int): n is a multiple of 8.
TEXT ·f32ToF16NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	SUBS $8, R2, R2
	BLT  done
	VLD1.P 32(R1), [V0.S4, V1.S4]
	FCVTN(2, 0)
	FCVTN2(2, 1)
	VST1.P [V2.H8], 16(R0)
	B    loop

done:
	RET

// func bf16ToF32NEON(dst *float32, src *uint16, n int): n is a multiple of 8.
TEXT ·bf16ToF32NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	SUBS $8, R2, R2
	BLT  done
	VLD1.P 16(R1), [V0.H8]
	SHLL(1, 0)
	SHLL2(2, 0)
	VST1.P [V1.S4, V2.S4], 32(R0)
	B    loop

done:
	RET
