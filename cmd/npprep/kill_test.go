package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"neuroprefetcher/format/bundle"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
)

// start runs npprep in a process of its own.
func start(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := &exec.Cmd{Path: os.Args[0], Args: append([]string{"npprep"}, args...), Stdout: &out, Stderr: &out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// npprep runs to the end.
func npprep(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd, out := start(t, args...)
	cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// contents reads a bundle, checked.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatalf("what is there is no good bundle: %v", err)
	}
	if err := b.Verify(context.Background(), nil); err != nil {
		t.Fatalf("what is there is no good bundle: %v", err)
	}
	out := map[string]string{}
	ents, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ents {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Killed at random moments and run again: the bundle is that of an undisturbed run, and at no moment is there
// anything else at its place than nothing, the bundle of before, or the new one, whole.
func TestKilledAtRandomMoments(t *testing.T) {
	model := ct.Dir(t, func(m *ct.Model) { m.Layers = 12 })
	args := func(work, out string, align bool) []string {
		a := []string{"prepare", "--dense", "--quiet", "--model", model, "--work", work, "--out", out}
		if align {
			a = append(a, "--record-align", "4096")
		}
		return a
	}
	ref := t.TempDir()
	begin := time.Now()
	if out, code := npprep(t, args(filepath.Join(ref, "w"), filepath.Join(ref, "new"), false)...); code != 0 {
		t.Fatal(out)
	}
	whole := time.Since(begin)
	want := contents(t, filepath.Join(ref, "new"))
	if out, code := npprep(t, args(filepath.Join(ref, "w2"), filepath.Join(ref, "old"), true)...); code != 0 {
		t.Fatal(out)
	}
	old := contents(t, filepath.Join(ref, "old"))

	r := rand.New(rand.NewPCG(20, 26))
	killed := 0
	for _, before := range []bool{false, true} {
		dir := t.TempDir()
		work, out := filepath.Join(dir, "w"), filepath.Join(dir, "b.np")
		if before {
			if text, code := npprep(t, args(filepath.Join(dir, "w0"), out, true)...); code != 0 {
				t.Fatal(text)
			}
		}
		for i := range 10 {
			cmd, _ := start(t, args(work, out, false)...)
			time.Sleep(time.Duration(r.Float64() * 1.1 * float64(whole)))
			cmd.Process.Kill()
			if err := cmd.Wait(); err != nil {
				killed++
			}
			_, err := os.Stat(out)
			switch {
			case errors.Is(err, os.ErrNotExist) && !before:
			default:
				got := contents(t, out)
				if !equal(got, want) && !(before && equal(got, old)) {
					t.Fatalf("kill %d: another bundle is at its place", i)
				}
			}
			if i%3 == 2 { // sometimes go on from a heap of several kills
				if text, code := npprep(t, args(work, out, false)...); code != 0 {
					t.Fatalf("kill %d: run again: %s", i, text)
				}
				if !equal(contents(t, out), want) {
					t.Fatalf("kill %d: another bundle", i)
				}
				if _, err := os.Stat(filepath.Join(dir, ".b.np.building")); err == nil {
					t.Errorf("kill %d: the build folder is left", i)
				}
				os.RemoveAll(work)
				os.RemoveAll(out)
				before = false
			}
		}
	}
	if killed == 0 {
		t.Error("every run ended before it was killed: nothing was tested")
	}
	t.Logf("%d of 20 runs were killed in the middle", killed)
}

// One SIGINT is a clean stop: exit 130, the bundle of before untouched, the next run goes on.
func TestInterrupt(t *testing.T) {
	model := ct.Dir(t, func(m *ct.Model) { m.Layers = 40 })
	dir := t.TempDir()
	out := filepath.Join(dir, "b.np")
	if text, code := npprep(t, "prepare", "--dense", "--record-align", "4096", "--model", model, "--work", filepath.Join(dir, "w0"), "--out", out); code != 0 {
		t.Fatal(text)
	}
	old := contents(t, out)
	for try := range 20 {
		work := filepath.Join(dir, fmt.Sprint("w", try+1))
		cmd, text := start(t, "prepare", "--dense", "--model", model, "--work", work, "--out", out)
		unit := filepath.Join(work, "repack", ".layer-0000.json")
		for range 5000 {
			if _, err := os.Stat(unit); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code == 0 {
			// it was quicker than the signal: back to the old bundle, once more
			if text, code := npprep(t, "prepare", "--dense", "--record-align", "4096", "--model", model, "--work", filepath.Join(dir, "w0"), "--out", out); code != 0 {
				t.Fatal(text)
			}
			continue
		} else if code != 130 {
			t.Fatalf("exit %d: %s", code, text)
		}
		if strings.Count(text.String(), "npprep: interrupted") != 1 || strings.Contains(text.String(), "error") {
			t.Errorf("says %q", text)
		}
		if !equal(contents(t, out), old) {
			t.Error("the old bundle changed")
		}
		if _, err := os.Stat(filepath.Join(dir, ".b.np.building")); err == nil {
			t.Error("the build folder is left")
		}
		if text, code := npprep(t, "prepare", "--dense", "--json", "--quiet", "--model", model, "--work", work, "--out", out); code != 0 || strings.Contains(text, `"resumed_layers": 0`) {
			t.Errorf("exit %d, began anew: %s", code, text)
		}
		return
	}
	t.Error("no run was slow enough to be interrupted")
}

// Two runs at once: on one work folder, and on one output from two work folders. The second is refused.
func TestTwoAtOnce(t *testing.T) {
	model := ct.Dir(t, func(m *ct.Model) { m.Layers = 40 })
	dir := t.TempDir()
	work := filepath.Join(dir, "w")
	for range 20 {
		os.RemoveAll(work)
		cmd, text := start(t, "repack", "--model", model, "--work", work)
		for range 5000 {
			if _, err := os.Stat(filepath.Join(work, "repack", ".layer-0000.json")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		said, code := npprep(t, "repack", "--model", model, "--work", work)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the first: %v %s", err, text)
		}
		if code == 0 {
			continue // the first was done already
		}
		if code != 3 || !strings.Contains(said, "another npprep is working in this folder") || !strings.Contains(said, "hint:") {
			t.Errorf("exit %d: %s", code, said)
		}
		break
	}
	// the output is held by this process
	out := filepath.Join(dir, "b.np")
	w, err := bundle.NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	said, code := npprep(t, "bundle", "--dense", "--model", model, "--work", work, "--out", out)
	if code != 3 || !strings.Contains(said, "another npprep is writing this bundle") {
		t.Errorf("exit %d: %s", code, said)
	}
	w.Close()
	if said, code := npprep(t, "bundle", "--dense", "--model", model, "--work", work, "--out", out); code != 0 {
		t.Error(said)
	}
}

// The same with calibration: whatever stage a kill falls into, the bundle comes out the same.
func TestCalibrationKilledAtRandomMoments(t *testing.T) {
	tiny := filepath.Join("..", "..", "pipelines", "tiny")
	args := func(dir string) []string {
		return []string{"prepare", "--quiet", "--model", filepath.Join(tiny, "checkpoint"), "--text", filepath.Join(tiny, "calibration.txt"),
			"--tokens", "2048", "--centroids", "16", "--epochs", "1", "--out", filepath.Join(dir, "b.np")}
	}
	ref := t.TempDir()
	begin := time.Now()
	if out, code := npprep(t, args(ref)...); code != 0 {
		t.Fatal(out)
	}
	whole := time.Since(begin)
	want := contents(t, filepath.Join(ref, "b.np"))
	r := rand.New(rand.NewPCG(3, 5))
	dir := t.TempDir()
	killed := 0
	for range 6 {
		cmd, _ := start(t, args(dir)...)
		time.Sleep(time.Duration(r.Float64() * 0.6 * float64(whole)))
		cmd.Process.Kill()
		if cmd.Wait() != nil {
			killed++
		}
	}
	if out, code := npprep(t, args(dir)...); code != 0 {
		t.Fatal(out)
	}
	if !equal(contents(t, filepath.Join(dir, "b.np")), want) {
		t.Error("another bundle")
	}
	if killed == 0 {
		t.Error("nothing was killed")
	}
	t.Logf("%d of 6 runs were killed in the middle", killed)
}
