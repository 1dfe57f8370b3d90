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
