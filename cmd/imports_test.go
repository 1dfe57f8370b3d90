package cmd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "neuroprefetcher/"

// allowed says which top folders a top folder may import; nprun, which runs on the device, never reaches prep.
var allowed = map[string][]string{
	"format":  {"format"},
	"kernels": {"kernels"},
	"runtime": {"runtime", "format", "kernels"},
	"prep":    {"prep", "runtime", "format", "kernels"},
	"cmd":     {"cmd", "prep", "runtime", "format", "kernels"},
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestImportsGoOneWay holds cmd → prep → runtime → format, kernels, in packages and in their tests.
func TestImportsGoOneWay(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, module+"...") {
		words := strings.Fields(line)
		from := top(words[0])
		if from == "" {
			t.Errorf("%s is in no known folder", words[0])
			continue
		}
		for _, to := range words[1:] {
			if strings.HasPrefix(to, module) && !slices.Contains(allowed[from], top(to)) {
				t.Errorf("%s imports %s: %s may import %v", words[0], to, from, allowed[from])
			}
		}
	}
}

// TestRunNeverReachesPrep holds it over all dependencies of nprun, not only the direct ones.
func TestRunNeverReachesPrep(t *testing.T) {
	for _, p := range goList(t, "-deps", module+"cmd/nprun") {
		if top(p) == "prep" {
			t.Errorf("nprun depends on %s", p)
		}
	}
}

// TestUnsafeStaysBelow holds that only kernels and the storage ring use unsafe, and nobody cgo.
func TestUnsafeStaysBelow(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...") {
		words := strings.Fields(line)
		if strings.HasPrefix(words[0], module+"kernels") || words[0] == module+"runtime/storage" {
			continue
		}
		for _, banned := range []string{"unsafe", "C"} {
			if slices.Contains(words[1:], banned) {
				t.Errorf("%s imports %s", words[0], banned)
			}
		}
	}
}

func top(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, module), "/")
	if _, ok := allowed[name]; !ok || !strings.HasPrefix(path, module) {
		return ""
	}
	return name
}
