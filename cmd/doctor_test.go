package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctor holds that a machine alone is never a failure, that the report is whole, that a bundle that fits nowhere and
// one that is none end with their own codes, and that nothing is left behind.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	type report struct {
		Findings []struct{ Name, Verdict, Text, Advice string }
	}
	read := func(out string) map[string]string {
		var r report
		parse(t, out, &r)
		got := map[string]string{}
		for _, f := range r.Findings {
			if f.Verdict != "ok" && f.Verdict != "hint" && f.Verdict != "bad" || f.Text == "" || f.Verdict == "hint" && f.Advice == "" {
				t.Errorf("%+v", f)
			}
			got[f.Name] = f.Verdict
		}
		return got
	}
	got := read(run(t, "nprun", "doctor", "--json"))
	for _, name := range []string{"processor", "kernel", "io_uring", "locked memory", "memory", "cgroup", "swap", "huge pages", "drive"} {
		if got[name] == "" {
			t.Errorf("nothing about %s: %v", name, got)
		}
	}
	run(t, "nprun", "bench", "--synthetic", "tiny", "--dir", dir, "-n", "1", "--warmup", "0")
	bundle := filepath.Join(dir, "tiny")
	if got := read(run(t, "nprun", "doctor", "-b", bundle, "--json")); got["bundle"] != "ok" || got["fit"] != "ok" || got["O_DIRECT"] == "" || got["drive"] == "" {
		t.Errorf("a good bundle: %v", got)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		bad  string
	}{
		"no bundle": {[]string{"-b", filepath.Join(dir, "none")}, 3, "bundle"},
		"no room":   {[]string{"-b", bundle, "--memory", "1MiB"}, 4, "fit"},
		"no folder": {[]string{"--dir", filepath.Join(dir, "none")}, 3, "drive"},
		"a file":    {[]string{"--dir", filepath.Join(bundle, "config.json")}, 3, "drive"},
	} {
		o, e, code := tool(t, "nprun", append([]string{"doctor", "--json"}, c.args...)...)
		if strings.Contains(e, ".nprun-doctor") {
			t.Errorf("%s: names a file of its own: %s", name, e)
		}
		if code != c.code || !strings.HasPrefix(e, "nprun: error: ") || read(o)[c.bad] != "bad" {
			t.Errorf("%s: exit %d, %s%s", name, code, o, e)
		}
	}
	for _, args := range [][]string{{"x"}, {"--memory", "1GiB"}, {"-b", dir, "--dir", dir}} {
		if o, _, code := tool(t, "nprun", append([]string{"doctor"}, args...)...); code != 2 || o != "" {
			t.Errorf("%v: exit %d, %s", args, code, o)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := read(run(t, "nprun", "doctor", "--dir", empty, "--json")); got["drive"] == "" {
		t.Errorf("a folder: %v", got)
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
