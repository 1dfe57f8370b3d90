package kernels

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Which processor feature an instruction of the AVX-512 functions needs, in the
// form that they use. The level avx512 is gated on F, BW, VL, DQ (with AVX2, FMA
// and F16C below it) and hammingRowsAVX512 on VPOPCNTDQ too.
var avx512Needs = map[string]string{
	"base": "ADDQ CMPQ DECQ INCQ JB JE JGE JLE JLT JMP JNE JNZ JZ LEAQ MOVB MOVBLZX MOVL MOVLQSX MOVQ MOVSS MOVWLZX ORQ " +
		"PREFETCHT0 RET SHLQ SHRQ SUBQ TESTB TESTQ XORQ IMULQ POPCNTQ XORL ANDQ CMPB DECL",
	"AVX2 FMA F16C": "VADDPS VADDSS VBROADCASTSS VCVTPH2PS VCVTPS2PH VDIVPS VEXTRACTF128 VEXTRACTI128 VFMADD213PS VFMADD231PS " +
		"VFMADD231SS VFNMADD231PS VMAXPS VMAXSS VMINPS VMOVAPS VMOVD VMOVHLPS VMOVQ VMOVSHDUP VMOVSS VMOVUPS VMULPS VPADDQ " +
		"VPMOVZXWD VPSLLD VPSRLDQ VPXOR VSUBPS VXORPS VZEROUPPER",
	"F":         "VEXTRACTF64X4 VEXTRACTI64X4 VMOVDQU64 VPXORQ VRNDSCALEPS VSCALEFPS",
	"VPOPCNTDQ": "VPOPCNTQ",
}

// The features that the code needs are those it is gated on: the functions of
// each level hold only instructions of that level.
func TestInstructionsMatchTheGate(t *testing.T) {
	feature := map[string]string{}
	for f, names := range avx512Needs {
		for _, n := range strings.Fields(names) {
			feature[n] = f
		}
	}
	wide := regexp.MustCompile(`\bZ\d|\bK[0-7]\b|\b[XY](1[6-9]|2\d|3[01])\b`)
	line := regexp.MustCompile(`^\t([A-Z][A-Z0-9]*)\b`)
	seen := 0
	for _, subject := range []string{"attention", "axpy", "bits", "convert", "dot", "exp", "norm", "q4"} {
		src, err := os.ReadFile(filepath.Join(".", subject+"_amd64.s"))
		if os.IsNotExist(err) {
			t.Skip("the sources are not beside the test binary")
		}
		if err != nil {
			t.Fatal(err)
		}
		fn := ""
		for i, l := range strings.Split(string(src), "\n") {
			l, _, _ = strings.Cut(l, "//")
			if name, ok := strings.CutPrefix(l, "TEXT ·"); ok {
				fn, _, _ = strings.Cut(name, "(")
				seen++
			}
			m := line.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			switch f, known := feature[m[1]]; {
			case strings.HasSuffix(fn, "AVX2"):
				if wide.MatchString(l) || known && (f == "F" || f == "VPOPCNTDQ") {
					t.Errorf("%s_amd64.s:%d: %s needs AVX-512: %s", subject, i+1, fn, l)
				}
			case !known:
				t.Errorf("%s_amd64.s:%d: %s: which feature is %s of?", subject, i+1, fn, m[1])
			case f == "VPOPCNTDQ" && fn != "hammingRowsAVX512":
				t.Errorf("%s_amd64.s:%d: %s is not gated on VPOPCNTDQ", subject, i+1, fn)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d functions found", seen)
	}
}
