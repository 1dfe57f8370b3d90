//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// func mulScaleNEON(dst, x, weight *float32, n int, scale float32)
//
// dst = x · scale · weight, without weight if it is nil; n is a multiple of 8.
TEXT ·mulScaleNEON(SB), NOSPLIT, $0-36
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD weight+16(FP), R3
	MOVD n+24(FP), R2
	FMOVS scale+32(FP), F0
	VDUP V0.S[0], V0.S4
	CBZ  R3, plain

weighted:
	SUBS $8, R2, R2
	BLT  done
	VLD1.P 32(R1), [V1.S4, V2.S4]
	VLD1.P 32(R3), [V3.S4, V4.S4]
	FMUL4(1, 1, 0)
	FMUL4(2, 2, 0)
	FMUL4(1, 1, 3)
	FMUL4(2, 2, 4)
	VST1.P [V1.S4, V2.S4], 32(R0)
	B    weighted

plain:
	SUBS $8, R2, R2
	BLT  done
	VLD1.P 32(R1), [V1.S4, V2.S4]
	FMUL4(1, 1, 0)
	FMUL4(2, 2, 0)
	VST1.P [V1.S4, V2.S4], 32(R0)
	B    plain

done:
	RET

// func ropeNEON(lo, hi, cos, sin *float32, n int)
//
// lo, hi = lo·cos − hi·sin, hi·cos + lo·sin; n is a multiple of 8.
TEXT ·ropeNEON(SB), NOSPLIT, $0-40
	MOVD lo+0(FP), R0
	MOVD hi+8(FP), R1
	MOVD cos+16(FP), R3
	MOVD sin+24(FP), R4
	MOVD n+32(FP), R2

loop:
	SUBS $4, R2, R2
	BLT  done
	VLD1 (R0), [V0.S4]
	VLD1 (R1), [V1.S4]
	VLD1.P 16(R3), [V2.S4]
	VLD1.P 16(R4), [V3.S4]
	FMUL4(4, 0, 2)
	FMUL4(5, 1, 3)
	FSUB4(4, 4, 5)
	FMUL4(5, 1, 2)
	FMUL4(6, 0, 3)
	FADD4(5, 5, 6)
	VST1.P [V4.S4], 16(R0)
	VST1.P [V5.S4], 16(R1)
	B    loop

done:
	RET

// func maxF32NEON(x *float32, n int) float32
//
// n is a multiple of 8 and not 0. A NaN is greater than nothing.
TEXT ·maxF32NEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R2
	MOVD $0xff800000, R1 // −Inf
	VDUP R1, V0.S4
	VDUP R1, V1.S4

loop:
	VLD1.P 32(R0), [V2.S4, V3.S4]
	FCMGT4(4, 2, 0)
	FCMGT4(5, 3, 1)
	VBIT V4.B16, V2.B16, V0.B16
	VBIT V5.B16, V3.B16, V1.B16
	SUBS $8, R2, R2
	BNE  loop
	FMAX4(0, 0, 1)
	FMAXV4(0, 0)
	FMOVS F0, ret+16(FP)
	RET
