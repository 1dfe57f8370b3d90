//go:build !purego

#include "textflag.h"

// As the generic versions, to the bit.

// func f16ToF32AVX2(dst *float32, src *uint16, n int): n is a multiple of 8.
TEXT ·f16ToF32AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $8, CX
	JLT  done
	VCVTPH2PS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	JMP  loop

done:
	VZEROUPPER
	RET

// func f32ToF16AVX2(dst *uint16, src *float32, n int): n is a multiple of 8.
TEXT ·f32ToF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $8, CX
	JLT  done
	VMOVUPS (SI), Y0
	VCVTPS2PH $0, Y0, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	JMP  loop

done:
	VZEROUPPER
	RET

// func bf16ToF32AVX2(dst *float32, src *uint16, n int): n is a multiple of 8.
TEXT ·bf16ToF32AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $8, CX
	JLT  done
	VPMOVZXWD (SI), Y0
	VPSLLD $16, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	JMP  loop

done:
	VZEROUPPER
	RET

// func f16ToF32AVX512(dst *float32, src *uint16, n int): n is a multiple of 16.
TEXT ·f16ToF32AVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $16, CX
	JLT  done
	VCVTPH2PS (SI), Z0
	VMOVUPS Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	JMP  loop

done:
	VZEROUPPER
	RET

// func f32ToF16AVX512(dst *uint16, src *float32, n int): n is a multiple of 16.
TEXT ·f32ToF16AVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $16, CX
	JLT  done
	VMOVUPS (SI), Z0
	VCVTPS2PH $0, Z0, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	JMP  loop

done:
	VZEROUPPER
	RET

// func bf16ToF32AVX512(dst *float32, src *uint16, n int): n is a multiple of 16.
TEXT ·bf16ToF32AVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	SUBQ $16, CX
	JLT  done
	VPMOVZXWD (SI), Z0
	VPSLLD $16, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	JMP  loop

done:
	VZEROUPPER
	RET
