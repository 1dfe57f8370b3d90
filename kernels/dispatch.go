package kernels

import "os"

// The level in use. The flags are read by the x_amd64.go and x_arm64.go
// wrappers; a higher level keeps the lower one's flag set, so that a kernel
// without a version of its own falls back to the next one.
var (
	level      string
	useAVX2    bool // AVX2, FMA, F16C: Intel Haswell (2013), AMD Zen (2017) and later
	useAVX512  bool // and AVX-512 F, BW, VL, DQ: Intel Skylake-SP (2017), AMD Zen 4 (2022) and later
	useVPOPCNT bool // and AVX-512 VPOPCNTDQ: Intel Ice Lake (2019), AMD Zen 4 (2022) and later
	useNEON    bool // every arm64 processor
)

func init() { setLevel(pickLevel(Levels(), os.Getenv("NP_CPU"))) }

// pickLevel is the wanted one of the supported levels; an empty, unknown or
// unsupported name changes nothing and gives the highest.
func pickLevel(supported []string, wanted string) string {
	for _, l := range supported {
		if l == wanted {
			return l
		}
	}
	return supported[len(supported)-1]
}

// Level names the implementation in use: "generic", "avx2", "avx512" or "neon".
func Level() string { return level }

// Levels lists what this machine and this build support, lowest first.
func Levels() []string { return append([]string{"generic"}, fastLevels()...) }

// SetLevel switches to a supported level and returns what undoes it; it panics
// for an unsupported one. For tests: not safe while kernels run.
func SetLevel(name string) (restore func()) {
	old := level
	for _, l := range Levels() {
		if l == name {
			setLevel(name)
			return func() { setLevel(old) }
		}
	}
	panic("kernels: level " + name + " is not supported here")
}

func setLevel(name string) {
	level = name
	useAVX2 = name == "avx2" || name == "avx512"
	useAVX512 = name == "avx512"
	useVPOPCNT = useAVX512 && hasVPOPCNT()
	useNEON = name == "neon"
}
