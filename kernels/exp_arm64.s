//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// As in exp_amd64.s: exp(x) = 2^n · exp(r), n = round(x·log2 e), r = x − n·ln 2
// in two parts, exp(r) = 1 + r + r²·P(r). The argument is clamped to [lo, hi],
// where the result is 0 and infinite.
DATA expConst<>+0(SB)/4, $0xc2d00000 // lo = -104.0
DATA expConst<>+4(SB)/4, $0x3fb8aa3b // log2e = 1.4426950408889634
DATA expConst<>+8(SB)/4, $0x3f318000 // ln2hi = 0.693359375
DATA expConst<>+12(SB)/4, $0xb95e8083 // ln2lo = -0.00021219444
DATA expConst<>+16(SB)/4, $0x39506967 // p0 = 0.000198756915
DATA expConst<>+20(SB)/4, $0x3ab743ce // p1 = 0.0013981999507
DATA expConst<>+24(SB)/4, $0x3c088908 // p2 = 0.0083334519073
DATA expConst<>+28(SB)/4, $0x3d2aa9c1 // p3 = 0.041665795894
DATA expConst<>+32(SB)/4, $0x3e2aaaaa // p4 = 0.16666665459
DATA expConst<>+36(SB)/4, $0x3f000000 // p5 = 0.50000001201
DATA expConst<>+40(SB)/4, $0x3f800000 // one = 1.0
DATA expConst<>+44(SB)/4, $0x42c80000 // hi = 100.0
GLOBL expConst<>(SB), RODATA|NOPTR, $48

// func expSumNEON(dst, x *float32, n int, m float32) float32
//
// dst = exp(x − m), no x above m; n is a multiple of 4. Returns the sum.
TEXT ·expSumNEON(SB), NOSPLIT, $0-36
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R2
	MOVD $expConst<>(SB), R5
	VLD1 (R5), [V28.S4, V29.S4, V30.S4]
	VDUP V28.S[0], V16.S4
	VDUP V28.S[1], V17.S4
	VDUP V28.S[2], V18.S4
	VDUP V28.S[3], V19.S4
	VDUP V29.S[0], V20.S4
	VDUP V29.S[1], V21.S4
	VDUP V29.S[2], V22.S4
	VDUP V29.S[3], V23.S4
	VDUP V30.S[0], V24.S4
	VDUP V30.S[1], V25.S4
	VDUP V30.S[2], V26.S4
	VDUP V30.S[3], V27.S4
	FMOVS m+24(FP), F4
	VDUP V4.S[0], V4.S4
	VEOR V5.B16, V5.B16, V5.B16

loop:
	SUBS $4, R2, R2
	BLT  done
	VLD1.P 16(R1), [V0.S4]
	FSUB4(0, 0, 4)
	FMAX4(0, 0, 16)
	FMUL4(1, 0, 17)
	FRINTN4(1, 1)
	VFMLS V18.S4, V1.S4, V0.S4
	VFMLS V19.S4, V1.S4, V0.S4
	VORR V20.B16, V20.B16, V2.B16
	VORR V21.B16, V21.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V22.B16, V22.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V23.B16, V23.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V24.B16, V24.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V25.B16, V25.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V26.B16, V26.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V26.B16, V26.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	FCVTNS4(1, 1) // 2^n in two factors: each is a normal number
	SSHR1(0, 1)
	VSUB V0.S4, V1.S4, V1.S4
	VSHL $23, V0.S4, V0.S4
	VSHL $23, V1.S4, V1.S4
	VADD V26.S4, V0.S4, V0.S4
	VADD V26.S4, V1.S4, V1.S4
	FMUL4(3, 3, 0)
	FMUL4(3, 3, 1)
	VST1.P [V3.S4], 16(R0)
	FADD4(5, 5, 3)
	B    loop

done:
	FADDP4(5, 5, 5)
	FADDP4(5, 5, 5)
	FMOVS F5, ret+32(FP)
	RET

// func siluMulNEON(dst, gate, up *float32, n int)
//
// dst = gate / (1 + exp(−gate)) · up; n is a multiple of 4.
TEXT ·siluMulNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD gate+8(FP), R1
	MOVD up+16(FP), R3
	MOVD n+24(FP), R2
	MOVD $expConst<>(SB), R5
	VLD1 (R5), [V28.S4, V29.S4, V30.S4]
	VDUP V28.S[0], V16.S4
	VDUP V28.S[1], V17.S4
	VDUP V28.S[2], V18.S4
	VDUP V28.S[3], V19.S4
	VDUP V29.S[0], V20.S4
	VDUP V29.S[1], V21.S4
	VDUP V29.S[2], V22.S4
	VDUP V29.S[3], V23.S4
	VDUP V30.S[0], V24.S4
	VDUP V30.S[1], V25.S4
	VDUP V30.S[2], V26.S4
	VDUP V30.S[3], V27.S4

loop:
	SUBS $4, R2, R2
	BLT  done
	VLD1.P 16(R1), [V6.S4]
	VLD1.P 16(R3), [V7.S4]
	FNEG4(0, 6)
	FMIN4(0, 0, 27)
	FMAX4(0, 0, 16)
	FMUL4(1, 0, 17)
	FRINTN4(1, 1)
	VFMLS V18.S4, V1.S4, V0.S4
	VFMLS V19.S4, V1.S4, V0.S4
	VORR V20.B16, V20.B16, V2.B16
	VORR V21.B16, V21.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V22.B16, V22.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V23.B16, V23.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V24.B16, V24.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V25.B16, V25.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	VORR V26.B16, V26.B16, V2.B16
	VFMLA V0.S4, V3.S4, V2.S4
	VORR V26.B16, V26.B16, V3.B16
	VFMLA V0.S4, V2.S4, V3.S4
	FCVTNS4(1, 1) // 2^n in two factors: each is a normal number
	SSHR1(0, 1)
	VSUB V0.S4, V1.S4, V1.S4
	VSHL $23, V0.S4, V0.S4
	VSHL $23, V1.S4, V1.S4
	VADD V26.S4, V0.S4, V0.S4
	VADD V26.S4, V1.S4, V1.S4
	FMUL4(3, 3, 0)
	FMUL4(3, 3, 1)
	FADD4(3, 3, 26)
	FDIV4(6, 6, 3)
	FMUL4(6, 6, 7)
	VST1.P [V6.S4], 16(R0)
	B    loop

done:
	RET
