package bundle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// tree lists a directory's files and their contents, for comparison.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	ents, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ents {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			out[e.Name()] = err.Error()
			continue
		}
		out[e.Name()] = string(b)
	}
	return out
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestPublishReplacesAndLeavesNothingBehind(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	out := filepath.Join(parent, "b.np")
	for i := range 3 {
		m.Tool = "run " + string(rune('0'+i))
		if err := publish(t, dir, m, out); err != nil {
			t.Fatal(err)
		}
		b, err := Open(out)
		if err != nil || b.Manifest.Tool != m.Tool {
			t.Fatalf("run %d: %v, tool %q", i, err, b.Manifest.Tool)
		}
		if got := tree(t, parent); len(got) != 1 {
			t.Errorf("run %d left %v", i, got)
		}
	}
	if err := os.Mkdir(filepath.Join(parent, "empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, dir, m, filepath.Join(parent, "empty")); err != nil {
		t.Errorf("into an empty directory: %v", err)
	}
	// members are links to the work folder's files, so a bundle takes no room twice
	a, _ := os.Stat(filepath.Join(dir, MemberRows))
	b, _ := os.Stat(filepath.Join(out, MemberRows))
	if !os.SameFile(a, b) {
		t.Error("rows.np was copied within one file system")
	}
}

func TestPublishThroughALink(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	os.Mkdir(filepath.Join(parent, "real"), 0o777)
	link := filepath.Join(parent, "link")
	os.Symlink("real", link)
	if err := publish(t, dir, m, link); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if _, err := Open(filepath.Join(parent, "real")); err != nil {
		t.Error(err)
	}
	os.Symlink("nowhere", filepath.Join(parent, "dangling"))
	if err := publish(t, dir, m, filepath.Join(parent, "dangling")); !errors.Is(err, format.ErrInput) {
		t.Errorf("dangling link: %v", err)
	}
}

func TestOutputRefused(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	os.WriteFile(file, []byte("mine"), 0o666)
	full := filepath.Join(parent, "full")
	os.Mkdir(full, 0o777)
	os.WriteFile(filepath.Join(full, "thesis.tex"), []byte("mine"), 0o666)
	foreign := filepath.Join(parent, "foreign")
	os.Mkdir(foreign, 0o777)
	os.WriteFile(filepath.Join(foreign, MemberManifest), []byte(`{"name":"a browser extension"}`), 0o666)
	for _, out := range []string{file, full, foreign} {
		before := tree(t, parent)
		err := publish(t, dir, m, out)
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), filepath.Base(out)) {
			t.Errorf("%s: %v", out, err)
		}
		if !same(before, tree(t, parent)) {
			t.Errorf("%s: something changed: %v", out, tree(t, parent))
		}
	}
	if b, _ := os.ReadFile(filepath.Join(full, "thesis.tex")); string(b) != "mine" {
		t.Error("a file of the user's is gone")
	}
	// a directory that fills up while the bundle is made
	out := filepath.Join(parent, "late")
	w, err := NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	os.Mkdir(out, 0o777)
	os.WriteFile(filepath.Join(out, "x"), nil, 0o666)
	put(t, w, dir)
	if err := w.Publish(context.Background(), m); !errors.Is(err, format.ErrInput) {
		t.Errorf("filled meanwhile: %v", err)
	}
}

func put(t *testing.T, w *Writer, dir string) {
	t.Helper()
	for _, n := range []string{MemberRows, MemberResident} {
		if err := w.Link(context.Background(), n, filepath.Join(dir, n), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	for n, s := range map[string]string{MemberConfig: testConfig, MemberTokenizer: "{}"} {
		if err := w.Put(n, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
}

// A run that fails at any point leaves the bundle of before as it was.
func TestFailedRunLeavesTheOldBundle(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	out := filepath.Join(parent, "b.np")
	if err := publish(t, dir, m, out); err != nil {
		t.Fatal(err)
	}
	before := tree(t, out)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, f := range map[string]func(w *Writer) error{
		"closed at once": func(w *Writer) error { return errors.New("x") },
		"missing member": func(w *Writer) error {
			return w.Link(context.Background(), MemberRows, filepath.Join(dir, "none"), "", nil)
		},
		"member not what was recorded": func(w *Writer) error {
			os.Symlink(filepath.Join(dir, MemberRows), filepath.Join(dir, "sym"))
			return w.Link(context.Background(), MemberRows, filepath.Join(dir, "sym"), string(make64('0')), nil)
		},
		"required member not put": func(w *Writer) error { return w.Publish(context.Background(), m) },
		"interrupted":             func(w *Writer) error { put(t, w, dir); return w.Publish(ctx, m) },
		"bad manifest": func(w *Writer) error {
			put(t, w, dir)
			bad := *m
			bad.LayerCRC = nil
			return w.Publish(context.Background(), &bad)
		},
		"no room": func(w *Writer) error { return w.Room(1 << 60) },
	} {
		w, err := NewWriter(out)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		first := f(w)
		if first == nil {
			t.Errorf("%s: no error", name)
		}
		if w.err != nil {
			if err := w.Put("x", nil); err != first {
				t.Errorf("%s: writer goes on: %v", name, err)
			}
		}
		w.Close()
		if !same(before, tree(t, out)) || len(tree(t, parent)) != 1 {
			t.Errorf("%s: changed: %v", name, tree(t, parent))
		}
	}
	if b, err := Open(out); err != nil || b.Verify(context.Background(), nil) != nil {
		t.Error("the old bundle is damaged")
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir, m := work(t, 0)
	out := filepath.Join(t.TempDir(), "b.np")
	w, err := NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewWriter(out); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "another npprep") {
		t.Errorf("%v", err)
	}
	w.Close()
	if err := publish(t, dir, m, out); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
}

// What a killed run left in the sibling is not taken over.
func TestLeftoversAreEmptied(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	out := filepath.Join(parent, "b.np")
	left := filepath.Join(parent, ".b.np.building")
	os.MkdirAll(filepath.Join(left, "sub"), 0o777)
	os.WriteFile(filepath.Join(left, MemberPredictor), []byte("half"), 0o666)
	if err := publish(t, dir, m, out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, MemberPredictor)); err == nil {
		t.Error("a leftover became a member")
	}
}

// The way of file systems that cannot exchange names, and what it leaves when killed between its two renames.
func TestSwapAside(t *testing.T) {
	dir, m := work(t, 0)
	parent := t.TempDir()
	out := filepath.Join(parent, "b.np")
	if err := publish(t, dir, m, out); err != nil {
		t.Fatal(err)
	}
	w := &Writer{out: out, tmp: filepath.Join(parent, ".b.np.building")}
	os.Mkdir(w.tmp, 0o777)
	os.WriteFile(filepath.Join(w.tmp, "new"), nil, 0o666)
	if err := w.swapAside(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "new")); err != nil || len(tree(t, parent)) != 1 {
		t.Errorf("after the swap: %v %v", err, tree(t, parent))
	}

	os.RemoveAll(out)
	if err := publish(t, dir, m, out); err != nil {
		t.Fatal(err)
	}
	before := tree(t, out)
	if err := os.Rename(out, aside(out)); err != nil { // killed here
		t.Fatal(err)
	}
	w, err := NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if !same(before, tree(t, out)) {
		t.Error("the old bundle was not put back")
	}
}

// A work folder on another file system: members are copied.
func TestPublishAcrossFileSystems(t *testing.T) {
	dir, m := work(t, 0)
	other, err := os.MkdirTemp("/dev/shm", "bundle-test-")
	if err != nil {
		other, err = os.MkdirTemp(".", ".bundle-test-")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(other)
	var a, b unix.Stat_t
	if unix.Stat(dir, &a) != nil || unix.Stat(other, &b) != nil {
		t.Fatal("stat")
	}
	if a.Dev == b.Dev {
		t.Logf("%s and %s are one file system here: only linking is tested", dir, other)
	}
	out := filepath.Join(other, "b.np")
	if err := publish(t, dir, m, out); err != nil {
		t.Fatal(err)
	}
	x, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(context.Background(), nil); err != nil {
		t.Error(err)
	}
}
