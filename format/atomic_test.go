package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func put(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// only fails unless dir holds exactly one file of this name and content.
func only(t *testing.T, dir, name, content string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if len(list) != 1 || err != nil || string(data) != content {
		t.Errorf("directory %v, %s holds %q (%v)", list, name, data, err)
	}
}

func TestWriteFileAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	t.Setenv("TMPDIR", "/proc") // another file system where nothing can be made: it must not matter
	for _, s := range []string{"first", "", "third"} {
		if err := WriteFileAtomic(path, put(s)); err != nil {
			t.Fatal(err)
		}
		only(t, dir, "x", s)
	}
	// While it is being written the old content stands.
	if err := WriteFileAtomic(path, func(w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("y"), 3<<20)); err != nil {
			return err
		}
		old, err := os.ReadFile(path)
		if err != nil || string(old) != "third" {
			t.Errorf("%q, %v", old, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 3<<20 {
		t.Errorf("%v, %v", st, err)
	}
}

// TestWriteFileAtomicDevice holds that no rename takes a device or a pipe away.
func TestWriteFileAtomicDevice(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := pipe + ".link"
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link} {
		err := WriteFileAtomic(path, func(w io.Writer) error { return nil })
		if st, _ := os.Stat(path); !errors.Is(err, ErrInput) || st.Mode().IsRegular() {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWriteFileAtomicFailures(t *testing.T) {
	boom := Inputf("weight is NaN")
	for _, c := range []struct {
		name  string
		size  int64
		write func(io.Writer) error
		want  string
		kind  error
	}{
		{"producer", -1, func(w io.Writer) error { w.Write([]byte("half")); return boom }, "weight is NaN", ErrInput},
		{"too little", 10, put("123456789"), "9 bytes written, 10 announced", ErrIO},
		{"too much", 8, put("123456789"), "9 bytes written, 8 announced", ErrIO},
		{"no space", 1 << 60, put("never"), "1.0 EiB wanted", ErrIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x")
			if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
				t.Fatal(err)
			}
			err := WriteFileAtomicSize(path, c.size, c.write)
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.kind) {
				t.Errorf("%v", err)
			}
			if c.name == "no space" && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "available") || HintOf(err) == "") {
				t.Errorf("%v, hint %q", err, HintOf(err))
			}
			only(t, dir, "x", "old")
		})
	}
	for name, path := range map[string]string{
		"directory": t.TempDir(),
		"no parent": filepath.Join(t.TempDir(), "a", "b"),
	} {
		if err := WriteFileAtomic(path, put("x")); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFullFileSystem runs out of space in the middle of a write. It needs the right to mount.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=300k"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "x")
	if err := WriteFileAtomic(path, put("old")); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := WriteFileAtomic(path, func(w io.Writer) error {
		for range 64 {
			calls++
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrIO) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "available") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if calls > 3 {
		t.Errorf("%d writes after the failure", calls)
	}
	only(t, dir, "x", "old")
	if err := WriteFileAtomicSize(path, 400<<10, put("")); !errors.Is(err, ErrIO) || !strings.Contains(err.Error(), "400.0 KiB wanted") {
		t.Errorf("%v", err)
	}
	free, err := FreeSpace(dir)
	if err != nil {
		t.Fatal(err)
	}
	// what is a little too much does not read as if it fitted
	if err := WriteFileAtomicSize(path, free+1, put("")); !errors.Is(err, ErrIO) || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes wanted, %d available", free+1, free)) {
		t.Errorf("%v", err)
	}
	only(t, dir, "x", "old")
}

// TestKilledWriter leaves a real temporary file behind by killing the process that writes it.
func TestKilledWriter(t *testing.T) {
	if path := os.Getenv("NP_TEST_KILLED_WRITER"); path != "" {
		_ = WriteFileAtomic(path, func(w io.Writer) error {
			if _, err := w.Write(make([]byte, 2<<20)); err != nil {
				return err
			}
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		})
		t.Fatal("still alive")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := WriteFileAtomic(path, put("old")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
	cmd.Env = append(os.Environ(), "NP_TEST_KILLED_WRITER="+path)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("NOT RUN: under an emulator the test program cannot start itself")
	}
	if err == nil {
		t.Fatalf("the writer was not killed: %s", out)
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Fatalf("directory %v, want the file and the temporary", list)
	}
	if old, err := os.ReadFile(path); err != nil || string(old) != "old" {
		t.Errorf("%q, %v", old, err)
	}
	for _, name := range []string{".x", ".x12a", "x12", ".xy12"} { // not ours
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTemps(path); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 5 {
		t.Errorf("directory %v, want the file and four others", list)
	}
}

// TestTempInUse clears up while another writes the same file: both succeed.
func TestTempInUse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	err := WriteFileAtomic(path, func(w io.Writer) error {
		if err := RemoveTemps(path); err != nil {
			return err
		}
		_, err := w.Write([]byte("new"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	only(t, dir, "x", "new")
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("12345"), 0o666); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(path, 4); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), path) {
		t.Errorf("too large: %v", err)
	}
	if _, err := ReadFile(dir, 5); !errors.Is(err, ErrInput) {
		t.Errorf("directory: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 5); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrInput) {
		t.Errorf("absent: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(fifo, 5); !errors.Is(err, ErrInput) { // and does not hang
		t.Errorf("fifo: %v", err)
	}
	if err := os.WriteFile(path, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, 1000); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), `"size 12"`) || HintOf(err) == "" {
		t.Errorf("pointer: %v", err)
	}
}

func TestIEC(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 25088: "24.5 KiB", 5 << 30: "5.0 GiB"} {
		if got := IEC(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
