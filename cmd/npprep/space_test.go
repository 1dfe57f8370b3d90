package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ct "neuroprefetcher/format/checkpoint/checkpointtest"
)

// tenTiny is a checkpoint whose records take about ten times 300 KiB.
func tenTiny(t *testing.T) string { return ct.Dir(t, func(m *ct.Model) { m.Layers = 60 }) }

// A file system that is too small is found out before anything is written to it.
func TestWorkFolderTooSmall(t *testing.T) {
	dir := t.TempDir()
	out, ok := runOnMount(t, dir, "300k", "rw", "repack", "--model", tenTiny(t), "--work", filepath.Join(dir, "w"))
	if !ok {
		limited(t, tenTiny(t))
		return
	}
	if !strings.Contains(out, "exit 5") || !strings.Contains(out, "no space") || !strings.Contains(out, "wanted") || !strings.Contains(out, "available") || !strings.Contains(out, "hint: free some space") {
		t.Errorf("%s", out)
	}
	for _, n := range []string{"rows.np", "partial", "safetensors", "stage.json"} {
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "left") && strings.Contains(line, n) && !strings.HasSuffix(line, " 0\n") {
				t.Errorf("left behind: %s", line)
			}
		}
	}
}

// limited is the other way: a limit on the size of a file stands for the full drive.
func limited(t *testing.T, model string) {
	work := t.TempDir()
	cmd := exec.Command("sh", "-c", `ulimit -f 300; exec "$0" "$@"`, npprepLink(t), "repack", "--model", model, "--work", work)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("a file of limited size took all records: %s", out)
	}
	if _, err := os.Stat(filepath.Join(work, "repack", "stage.json")); err == nil {
		t.Error("taken for finished")
	}
}

// npprepLink is a path that runs npprep.
func npprepLink(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "npprep")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// The bundle's place is too small: the work folder's results stay, nothing is published.
func TestOutputTooSmall(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	out, ok := runOnMount(t, dir, "300k", "rw", "prepare", "--dense", "--model", tenTiny(t), "--work", work, "--out", filepath.Join(dir, "b.np"))
	if !ok {
		return
	}
	if !strings.Contains(out, "exit 5") || !strings.Contains(out, "no space") || !strings.Contains(out, "wanted") || strings.Contains(out, "left "+dir) {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(filepath.Join(work, "repack", "stage.json")); err != nil {
		t.Error("the records were lost")
	}
}

// A work folder on another file system than the bundle, big enough: members are copied, the bundle is the same.
func TestOutputOnAnotherFileSystem(t *testing.T) {
	model := ct.Dir(t)
	dir := t.TempDir()
	work, plain := t.TempDir(), filepath.Join(t.TempDir(), "b.np")
	if out, code := npprep(t, "prepare", "--dense", "--model", model, "--work", work, "--out", plain); code != 0 {
		t.Fatal(out)
	}
	out, ok := runOnMount(t, dir, "64m", "rw", "prepare", "--dense", "--model", model, "--work", work, "--out", filepath.Join(dir, "b.np"))
	if !ok {
		return
	}
	st, err := os.Stat(filepath.Join(plain, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "exit 0") || !strings.Contains(out, "left "+filepath.Join(dir, "b.np", "rows.np")) || strings.Contains(out, ".building") {
		t.Errorf("%s (manifest of %d bytes)", out, st.Size())
	}
}

// A place that cannot be written.
func TestReadOnlyOutput(t *testing.T) {
	model := ct.Dir(t)
	dir, work := t.TempDir(), t.TempDir()
	out, ok := runOnMount(t, dir, "1m", "ro", "prepare", "--dense", "--model", model, "--work", work, "--out", filepath.Join(dir, "b.np"))
	if !ok {
		if os.Getuid() == 0 {
			return // root writes wherever it may not; without mounts there is no read-only place
		}
		os.Chmod(dir, 0o555)
		defer os.Chmod(dir, 0o777)
		var code int
		if out, code = npprep(t, "prepare", "--dense", "--model", model, "--work", work, "--out", filepath.Join(dir, "b.np")); code == 5 {
			out += "exit 5"
		}
	}
	if !strings.Contains(out, "exit 5") || !strings.Contains(out, dir) || !strings.Contains(out, "cannot be written") {
		t.Errorf("%s", out)
	}
}
