//go:build !purego

#include "textflag.h"

// A nibble's count of set bits, twice, and the mask of a low nibble.
DATA nibbleCount<>+0(SB)/8, $0x0302020102010100
DATA nibbleCount<>+8(SB)/8, $0x0403030203020201
DATA nibbleCount<>+16(SB)/8, $0x0302020102010100
DATA nibbleCount<>+24(SB)/8, $0x0403030203020201
GLOBL nibbleCount<>(SB), RODATA|NOPTR, $32

// func hammingRowsAVX2(dst *int32, q, table *uint64, rows, words int)
//
// Bits are counted by nibble (VPSHUFB) into bytes. A byte holds 31 counts of at
// most 8: R8 counts pairs of vectors down from 15 before the bytes are summed
// into the four 64-bit sums of Y0.
TEXT ·hammingRowsAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ table+16(FP), SI
	MOVQ rows+24(FP), R9
	VMOVDQU nibbleCount<>(SB), Y15
	MOVL $0x0f0f0f0f, AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	VPXOR X13, X13, X13

row:
	MOVQ q+8(FP), DX
	MOVQ words+32(FP), CX
	VPXOR X0, X0, X0
	SUBQ $8, CX
	JLT  single

chunk:
	MOVL $15, R8
	VPXOR X1, X1, X1

pair:
	VMOVDQU (DX), Y2
	VMOVDQU 32(DX), Y6
	VPXOR (SI), Y2, Y2
	VPXOR 32(SI), Y6, Y6
	VPAND Y14, Y2, Y3
	VPSRLW $4, Y2, Y2
	VPAND Y14, Y6, Y7
	VPSRLW $4, Y6, Y6
	VPAND Y14, Y2, Y2
	VPAND Y14, Y6, Y6
	VPSHUFB Y3, Y15, Y3
	VPSHUFB Y2, Y15, Y2
	VPSHUFB Y7, Y15, Y7
	VPSHUFB Y6, Y15, Y6
	VPADDB Y3, Y2, Y2
	VPADDB Y7, Y6, Y6
	VPADDB Y2, Y1, Y1
	VPADDB Y6, Y1, Y1
	ADDQ $64, DX
	ADDQ $64, SI
	SUBQ $8, CX
	JLT  flush
	DECL R8
	JNZ  pair

flush:
	VPSADBW Y13, Y1, Y1
	VPADDQ Y1, Y0, Y0
	TESTQ CX, CX
	JGE  chunk

single:
	ADDQ $4, CX
	JLT  sum
	VMOVDQU (DX), Y2
	VPXOR (SI), Y2, Y2
	VPAND Y14, Y2, Y3
	VPSRLW $4, Y2, Y2
	VPAND Y14, Y2, Y2
	VPSHUFB Y3, Y15, Y3
	VPSHUFB Y2, Y15, Y2
	VPADDB Y3, Y2, Y2
	VPSADBW Y13, Y2, Y2
	VPADDQ Y2, Y0, Y0
	ADDQ $32, DX
	ADDQ $32, SI
	SUBQ $4, CX

sum:
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSRLDQ $8, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, BX
	ADDQ $4, CX
	JZ   store

tail:
	MOVQ (DX), AX
	XORQ (SI), AX
	POPCNTQ AX, AX
	ADDQ AX, BX
	ADDQ $8, DX
	ADDQ $8, SI
	DECQ CX
	JNZ  tail

store:
	MOVL BX, (DI)
	ADDQ $4, DI
	DECQ R9
	JNZ  row
	VZEROUPPER
	RET

// func hammingRowsAVX512(dst *int32, q, table *uint64, rows, words int)
//
// Needs VPOPCNTDQ.
TEXT ·hammingRowsAVX512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ table+16(FP), SI
	MOVQ rows+24(FP), R9

row:
	MOVQ q+8(FP), DX
	MOVQ words+32(FP), CX
	VPXOR X0, X0, X0
	SUBQ $8, CX
	JLT  sum

vector:
	VMOVDQU64 (DX), Z1
	VPXORQ (SI), Z1, Z1
	VPOPCNTQ Z1, Z1
	VPADDQ Z1, Z0, Z0
	ADDQ $64, DX
	ADDQ $64, SI
	SUBQ $8, CX
	JGE  vector

sum:
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSRLDQ $8, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, BX
	ADDQ $8, CX
	JZ   store

tail:
	MOVQ (DX), AX
	XORQ (SI), AX
	POPCNTQ AX, AX
	ADDQ AX, BX
	ADDQ $8, DX
	ADDQ $8, SI
	DECQ CX
	JNZ  tail

store:
	MOVL BX, (DI)
	ADDQ $4, DI
	DECQ R9
	JNZ  row
	VZEROUPPER
	RET

// func hammingRows4AVX2(dst *int32, q, table *uint64, groups, vectors int)
//
// Four rows at a time, rows of whole vectors (4 words); neither number is 0.
// Row r: bytes in Y(r), 64-bit sums in Y(4+r). A byte holds 31 counts of at most
// 8, so R8 counts 31 vectors down before the bytes go to the sums.
TEXT ·hammingRows4AVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ table+16(FP), SI
	MOVQ groups+24(FP), R9
	MOVQ vectors+32(FP), R10
	SHLQ $5, R10 // bytes of a row
	VMOVDQU nibbleCount<>(SB), Y15
	MOVL $0x0f0f0f0f, AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	VPXOR X13, X13, X13

group:
	MOVQ q+8(FP), DX
	MOVQ vectors+32(FP), CX
	LEAQ (SI)(R10*2), R11
	ADDQ R10, R11
	VPXOR X4, X4, X4
	VPXOR X5, X5, X5
	VPXOR X6, X6, X6
	VPXOR X7, X7, X7

chunk:
	MOVL $31, R8
	VPXOR X0, X0, X0
	VPXOR X1, X1, X1
	VPXOR X2, X2, X2
	VPXOR X3, X3, X3

vector:
	VMOVDQU (DX), Y8
	VPXOR (SI), Y8, Y9
	VPSRLW $4, Y9, Y10
	VPAND Y14, Y9, Y9
	VPAND Y14, Y10, Y10
	VPSHUFB Y9, Y15, Y9
	VPSHUFB Y10, Y15, Y10
	VPADDB Y9, Y0, Y0
	VPADDB Y10, Y0, Y0
	VPXOR (SI)(R10*1), Y8, Y11
	VPSRLW $4, Y11, Y12
	VPAND Y14, Y11, Y11
	VPAND Y14, Y12, Y12
	VPSHUFB Y11, Y15, Y11
	VPSHUFB Y12, Y15, Y12
	VPADDB Y11, Y1, Y1
	VPADDB Y12, Y1, Y1
	VPXOR (SI)(R10*2), Y8, Y9
	VPSRLW $4, Y9, Y10
	VPAND Y14, Y9, Y9
	VPAND Y14, Y10, Y10
	VPSHUFB Y9, Y15, Y9
	VPSHUFB Y10, Y15, Y10
	VPADDB Y9, Y2, Y2
	VPADDB Y10, Y2, Y2
	VPXOR (R11), Y8, Y11
	VPSRLW $4, Y11, Y12
	VPAND Y14, Y11, Y11
	VPAND Y14, Y12, Y12
	VPSHUFB Y11, Y15, Y11
	VPSHUFB Y12, Y15, Y12
	VPADDB Y11, Y3, Y3
	VPADDB Y12, Y3, Y3
	ADDQ $32, DX
	ADDQ $32, SI
	ADDQ $32, R11
	DECQ CX
	JZ   flush
	DECL R8
	JNZ  vector

flush:
	VPSADBW Y13, Y0, Y0
	VPADDQ Y0, Y4, Y4
	VPSADBW Y13, Y1, Y1
	VPADDQ Y1, Y5, Y5
	VPSADBW Y13, Y2, Y2
	VPADDQ Y2, Y6, Y6
	VPSADBW Y13, Y3, Y3
	VPADDQ Y3, Y7, Y7
	TESTQ CX, CX
	JNZ  chunk

	// Rows 1 and 3 go to the upper halves of the 64-bit lanes, then lanes are
	// paired and added until X4 holds the four sums.
	VPSLLQ $32, Y5, Y5
	VPSLLQ $32, Y7, Y7
	VPADDD Y5, Y4, Y4
	VPADDD Y7, Y6, Y6
	VPUNPCKLQDQ Y6, Y4, Y5
	VPUNPCKHQDQ Y6, Y4, Y7
	VPADDD Y7, Y5, Y4
	VEXTRACTI128 $1, Y4, X5
	VPADDD X5, X4, X4
	VMOVDQU X4, (DI)
	ADDQ $16, DI
	MOVQ R11, SI
	DECQ R9
	JNZ  group
	VZEROUPPER
	RET

// func maskAVX2(mask *uint64, x *float32, words int, threshold uint16)
//
// words is not 0. As MaskAtLeast: float16 magnitudes compare as integers; those
// above infinity's pattern are NaN.
TEXT ·maskAVX2(SB), NOSPLIT, $0-26
	MOVQ mask+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ words+16(FP), CX
	MOVWLZX threshold+24(FP), AX
	DECL AX // at least t is greater than t − 1
	VMOVD AX, X15
	VPBROADCASTW X15, Y15
	MOVL $0x7c00, AX
	VMOVD AX, X14
	VPBROADCASTW X14, Y14
	MOVL $0x7fff, AX
	VMOVD AX, X13
	VPBROADCASTW X13, Y13

word:
	VMOVUPS 0(SI), Y4
	VMOVUPS 32(SI), Y5
	VCVTPS2PH $0, Y4, X4
	VCVTPS2PH $0, Y5, X5
	VINSERTI128 $1, X5, Y4, Y4
	VPAND Y13, Y4, Y4
	VPCMPGTW Y15, Y4, Y0
	VPCMPGTW Y14, Y4, Y5
	VPANDN Y0, Y5, Y0
	VMOVUPS 64(SI), Y4
	VMOVUPS 96(SI), Y5
	VCVTPS2PH $0, Y4, X4
	VCVTPS2PH $0, Y5, X5
	VINSERTI128 $1, X5, Y4, Y4
	VPAND Y13, Y4, Y4
	VPCMPGTW Y15, Y4, Y1
	VPCMPGTW Y14, Y4, Y5
	VPANDN Y1, Y5, Y1
	VPACKSSWB Y1, Y0, Y0
	VPERMQ $0xd8, Y0, Y0
	VPMOVMSKB Y0, AX
	VMOVUPS 128(SI), Y4
	VMOVUPS 160(SI), Y5
	VCVTPS2PH $0, Y4, X4
	VCVTPS2PH $0, Y5, X5
	VINSERTI128 $1, X5, Y4, Y4
	VPAND Y13, Y4, Y4
	VPCMPGTW Y15, Y4, Y0
	VPCMPGTW Y14, Y4, Y5
	VPANDN Y0, Y5, Y0
	VMOVUPS 192(SI), Y4
	VMOVUPS 224(SI), Y5
	VCVTPS2PH $0, Y4, X4
	VCVTPS2PH $0, Y5, X5
	VINSERTI128 $1, X5, Y4, Y4
	VPAND Y13, Y4, Y4
	VPCMPGTW Y15, Y4, Y1
	VPCMPGTW Y14, Y4, Y5
	VPANDN Y1, Y5, Y1
	VPACKSSWB Y1, Y0, Y0
	VPERMQ $0xd8, Y0, Y0
	VPMOVMSKB Y0, BX
	SHLQ $32, BX
	ORQ  BX, AX
	MOVQ AX, (DI)
	ADDQ $256, SI
	ADDQ $8, DI
	DECQ CX
	JNZ  word
	VZEROUPPER
	RET
