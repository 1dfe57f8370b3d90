package kernels

import (
	"os"
	"testing"
)

func TestSetLevel(t *testing.T) {
	before := Level()
	for _, l := range Levels() {
		restore := SetLevel(l)
		if Level() != l {
			t.Errorf("SetLevel(%s): Level() = %s", l, Level())
		}
		restore()
		if Level() != before {
			t.Errorf("restore: Level() = %s, want %s", Level(), before)
		}
	}
	mustPanic(t, "SetLevel of an unknown level", func() { SetLevel("sse9") })
	if Levels()[0] != "generic" {
		t.Errorf("Levels() = %v", Levels())
	}
}

// NP_CPU lowers the level and does nothing else.
func TestPickLevel(t *testing.T) {
	avx2, avx512 := []string{"generic", "avx2"}, []string{"generic", "avx2", "avx512"}
	for _, c := range []struct {
		supported []string
		wanted    string
		want      string
	}{
		{avx512, "", "avx512"},
		{avx512, "avx2", "avx2"},
		{avx512, "generic", "generic"},
		{avx512, "AVX2", "avx512"},
		{avx2, "avx512", "avx2"},
		{avx2, "neon", "avx2"},
		{[]string{"generic"}, "avx2", "generic"},
	} {
		if got := pickLevel(c.supported, c.wanted); got != c.want {
			t.Errorf("pickLevel(%v, %q) = %s, want %s", c.supported, c.wanted, got, c.want)
		}
	}
	if want := pickLevel(Levels(), os.Getenv("NP_CPU")); Level() != want {
		t.Errorf("Level() = %s at start, want %s", Level(), want)
	}
}

// A level's flags include those of the lower ones it falls back to.
func TestLevelFlags(t *testing.T) {
	defer setLevel(Level())
	for name, want := range map[string][3]bool{
		"generic": {}, "avx2": {true}, "avx512": {true, true}, "neon": {2: true},
	} {
		setLevel(name)
		if got := [3]bool{useAVX2, useAVX512, useNEON}; got != want {
			t.Errorf("%s: flags %v, want %v", name, got, want)
		}
		if useVPOPCNT && !useAVX512 {
			t.Errorf("%s: VPOPCNT without AVX-512", name)
		}
	}
}
