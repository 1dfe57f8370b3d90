//go:build !purego

#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	MOVL $8, CX

loop:
	PAUSE
	DECL CX
	JNZ  loop
	RET
