package kernels

import (
	"os"
	"os/exec"
	"slices"
	"strings"
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
func TestLevelFromEnvironment(t *testing.T) {
	if os.Getenv("NP_PRINT_LEVEL") != "" {
		println("level:", Level())
		return
	}
	all := Levels()
	top := all[len(all)-1]
	for _, name := range []string{"", "generic", "avx2", "avx512", "neon", "nonsense"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLevelFromEnvironment$")
		cmd.Env = append(os.Environ(), "NP_PRINT_LEVEL=1", "NP_CPU="+name)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("NP_CPU=%s: %v\n%s", name, err, out)
		}
		want := top
		if slices.Contains(all, name) {
			want = name
		}
		if !strings.Contains(string(out), "level: "+want+"\n") {
			t.Errorf("NP_CPU=%s: want %s, got %s", name, want, out)
		}
	}
}
