//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// func hammingRowsNEON(dst *int32, q, table *uint64, rows, words int)
TEXT ·hammingRowsNEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD table+16(FP), R1
	MOVD rows+24(FP), R2

row:
	MOVD q+8(FP), R3
	MOVD words+32(FP), R4
	VEOR V0.B16, V0.B16, V0.B16
	SUBS $2, R4, R4
	BLT  last

pair:
	VLD1.P 16(R3), [V1.B16]
	VLD1.P 16(R1), [V2.B16]
	VEOR V1.B16, V2.B16, V1.B16
	VCNT V1.B16, V1.B16
	UADDLP8(1, 1)
	UADALP4(0, 1)
	SUBS $2, R4, R4
	BGE  pair

last:
	ADDS $2, R4, R4
	BEQ  sum
	MOVD (R3), R5
	MOVD.P 8(R1), R6
	EOR  R5, R6, R5
	FMOVD R5, F1 // the upper half becomes 0
	VCNT V1.B16, V1.B16
	UADDLP8(1, 1)
	UADALP4(0, 1)

sum:
	VADDV V0.S4, V0
	FMOVS F0, R5
	MOVW.P R5, 4(R0)
	SUBS $1, R2, R2
	BNE  row
	RET
