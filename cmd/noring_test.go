package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWithoutARing holds that a kernel or container that refuses io_uring, or memory for it, costs speed and one line that says
// what to change, and not a token. strace injects the refusals; NP_NO_STRACE=1 says that it cannot be had here.
func TestWithoutARing(t *testing.T) {
	b := prepared(t)
	if out, err := exec.Command("strace", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		if os.Getenv("NP_NO_STRACE") == "1" {
			t.Skipf("NP_NO_STRACE=1: REFUSED CALLS ARE NOT TESTED HERE (strace: %v)", err)
		}
		t.Fatalf("this test needs strace and ptrace: %v %s; install strace, or set NP_NO_STRACE=1 to go without it", err, out)
	}
	type result struct {
		IDs   []int
		Stats struct {
			Backend string `json:"io_backend"`
			Direct  bool   `json:"direct_io"`
		}
	}
	generate := func(under ...string) (r result, notes []string) {
		line := append(under, filepath.Join(bins.dir, "nprun"), "generate", "-b", b, "--mode", "sparse", "--dense-layers", "2", "--k-max", "150",
			"--prompt", "The fog", "--max-tokens", "16", "--ignore-eos", "--json")
		cmd := exec.Command(line[0], line[1:]...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v %s", line, err, &errs)
		}
		parse(t, string(out), &r)
		for line := range strings.Lines(errs.String()) {
			if strings.HasPrefix(line, "note: ") {
				notes = append(notes, line)
			}
		}
		return r, notes
	}
	want, notes := generate()
	if want.Stats.Backend != "uring" || len(want.IDs) != 16 {
		t.Skipf("NO IO_URING HERE: %+v, %q", want, notes)
	}
	for _, c := range []struct {
		inject, backend string
		notes           []string // a part of each
	}{
		{"io_uring_setup:error=EPERM", "pread", []string{"io_uring_setup: operation not permitted; reading with worker threads; allow io_uring"}},
		{"io_uring_setup:error=ENOSYS", "pread", []string{"io_uring_setup: function not implemented; reading with worker threads; use a kernel"}},
		{"io_uring_setup:error=ENOMEM", "pread", []string{"io_uring_setup: cannot allocate memory; reading with worker threads; raise the locked-memory limit"}},
		{"io_uring_register:error=ENOMEM", "uring", []string{"unregistered file", "unregistered buffers; raise the locked-memory limit"}},
	} {
		call, _, _ := strings.Cut(c.inject, ":")
		got, notes := generate("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", "inject="+c.inject)
		if !slices.Equal(got.IDs, want.IDs) || got.Stats.Backend != c.backend || got.Stats.Direct != want.Stats.Direct {
			t.Errorf("%s: %+v, want the tokens of %+v", c.inject, got, want)
		}
		if len(notes) != len(c.notes) {
			t.Errorf("%s: notes %q", c.inject, notes)
			continue
		}
		for i, part := range c.notes {
			if !strings.Contains(notes[i], part) {
				t.Errorf("%s: note %q lacks %q", c.inject, notes[i], part)
			}
		}
	}
}
