// Vector instructions that Go's assembler has no name for, on four float32
// lanes (.4S) unless said otherwise: destination first, numbers of V registers.

#define FADD4(d, n, m) WORD $(0x4E20D400 | (m)<<16 | (n)<<5 | (d))
#define FSUB4(d, n, m) WORD $(0x4EA0D400 | (m)<<16 | (n)<<5 | (d))
#define FMUL4(d, n, m) WORD $(0x6E20DC00 | (m)<<16 | (n)<<5 | (d))
#define FDIV4(d, n, m) WORD $(0x6E20FC00 | (m)<<16 | (n)<<5 | (d))
#define FMAX4(d, n, m) WORD $(0x4E20F400 | (m)<<16 | (n)<<5 | (d)) // NaN passes
#define FMIN4(d, n, m) WORD $(0x4EA0F400 | (m)<<16 | (n)<<5 | (d)) // NaN passes
#define FADDP4(d, n, m) WORD $(0x6E20D400 | (m)<<16 | (n)<<5 | (d))
#define FCMGT4(d, n, m) WORD $(0x6EA0E400 | (m)<<16 | (n)<<5 | (d)) // all ones where n > m
#define FNEG4(d, n) WORD $(0x6EA0F800 | (n)<<5 | (d))
#define FRINTN4(d, n) WORD $(0x4E218800 | (n)<<5 | (d)) // to nearest, ties to even
#define FCVTNS4(d, n) WORD $(0x4E21A800 | (n)<<5 | (d)) // to int32
#define SSHR1(d, n) WORD $(0x4F3F0400 | (n)<<5 | (d))   // int32 >> 1
#define FMAXV4(d, n) WORD $(0x6E30F800 | (n)<<5 | (d))  // greatest lane → S register

// float16: .4S ← lower or upper half of .8H, and back.
#define FCVTL(d, n) WORD $(0x0E217800 | (n)<<5 | (d))
#define FCVTL2(d, n) WORD $(0x4E217800 | (n)<<5 | (d))
#define FCVTN(d, n) WORD $(0x0E216800 | (n)<<5 | (d))
#define FCVTN2(d, n) WORD $(0x4E216800 | (n)<<5 | (d))

// .4S ← lower or upper half of .8H, shifted left by 16.
#define SHLL(d, n) WORD $(0x2E613800 | (n)<<5 | (d))
#define SHLL2(d, n) WORD $(0x6E613800 | (n)<<5 | (d))

// Sums of pairs: .8H ← .16B, and .4S += .8H.
#define UADDLP8(d, n) WORD $(0x6E202800 | (n)<<5 | (d))
#define UADALP4(d, n) WORD $(0x6E606800 | (n)<<5 | (d))

// float32 ← int32.
#define SCVTF4(d, n) WORD $(0x4E21D800 | (n)<<5 | (d))

// Products of signed bytes, lower or upper half: .8H ← .16B·.16B. And sums of pairs: .4S ← .8H.
#define SMULL8(d, n, m) WORD $(0x0E20C000 | (m)<<16 | (n)<<5 | (d))
#define SMULL8H(d, n, m) WORD $(0x4E20C000 | (m)<<16 | (n)<<5 | (d))
#define SADDLP4(d, n) WORD $(0x4E602800 | (n)<<5 | (d))
