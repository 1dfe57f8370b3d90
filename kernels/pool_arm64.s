//go:build !purego

#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	MOVD $32, R0

loop:
	YIELD
	SUBS $1, R0
	BNE  loop
	RET
