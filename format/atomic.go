package format

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// WriteFileAtomic makes path hold exactly what write writes, or leaves it as it was: a temporary sibling (a name that
// begins with a full stop and the file's name) is written, synced, renamed over path, and the directory synced. The
// sibling is removed on every failure that leaves the process alive. Errors that write returns by itself come back
// unchanged; failures of the file system are ErrIO, a place that cannot be written at all is ErrInput.
func WriteFileAtomic(path string, write func(w io.Writer) error) error {
	return WriteFileAtomicSize(path, -1, write)
}

// WriteFileAtomicSize is WriteFileAtomic for a known number of bytes: it refuses before it writes if the file system has
// less room, and fails if write wrote another number. A negative size is unknown.
func WriteFileAtomicSize(path string, size int64, write func(w io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	if st, err := os.Lstat(path); err == nil && st.IsDir() {
		return Inputf("%s: is a directory, not a file to replace", path)
	}
	if st, err := os.Stat(path); err == nil && !st.IsDir() && !st.Mode().IsRegular() { // as root, the rename would take /dev/null away
		return Inputf("%s: is a device or a pipe, not a file to replace", path)
	}
	if size >= 0 {
		if err := checkSpace(path, dir, size); err != nil {
			return err
		}
	}
	// The sibling must be in the same directory: TMPDIR may be another file system.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithPermissions(0o666))
	if err != nil {
		return createError(path, err)
	}
	defer func() {
		if cerr := f.Cleanup(); cerr != nil && err == nil {
			err = IOf("%s: remove the temporary file: %w", path, cerr)
		}
	}()
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) // tells RemoveTemps that it is in use, where the file system has locks
	cw := &countWriter{w: f}
	bw := bufio.NewWriterSize(cw, 1<<20)
	werr := write(bw)
	if werr == nil {
		werr = bw.Flush()
	}
	if cw.err != nil {
		return writeError(path, dir, cw.n, size, cw.err)
	}
	if werr != nil {
		return werr
	}
	if size >= 0 && cw.n != size {
		return IOf("%s: %d bytes written, %d announced", path, cw.n, size)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return writeError(path, dir, cw.n, size, err)
	}
	return SyncDir(dir)
}

// RemoveTemps removes the siblings of path that writers killed in the middle left behind. One that is being written stays.
func RemoveTemps(path string) error {
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return openError(dir, err)
	}
	for _, e := range list {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if inUse(filepath.Join(dir, e.Name())) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return IOf("%s: remove %s: %w", path, e.Name(), err)
		}
	}
	return nil
}

// inUse tells whether a writer holds its temporary file.
func inUse(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// SyncDir makes renames within dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return openError(dir, err)
	}
	defer d.Close()
	// Some file systems cannot sync a directory and say EINVAL; there is nothing better to do on them.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return IOf("%s: sync the directory: %w", dir, err)
	}
	return nil
}

// FreeSpace is the number of bytes that this user may still write to the file system of dir.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, openError(dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// CheckSpace refuses a write of size bytes into dir if the file system has less.
func CheckSpace(dir string, size int64) error { return checkSpace(dir, dir, size) }

// checkSpace is CheckSpace for what will lie in dir.
func checkSpace(what, dir string, size int64) error {
	free, err := FreeSpace(dir)
	if err != nil {
		return err
	}
	if size > free {
		wanted, available := IEC(size), IEC(free)
		if wanted == available { // to the digits shown
			wanted, available = fmt.Sprint(size, " bytes"), fmt.Sprint(free)
		}
		return Hint(IOf("%s: no space: %s wanted, %s available", what, wanted, available), MakeSpace)
	}
	return nil
}

// MakeSpace is what to do about a full file system.
const MakeSpace = "free some space or choose another directory"

// countWriter remembers how much the file took and its first error, so that a failing file is told from a failing producer.
type countWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countWriter) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err // a writer that failed once stays failed
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

func writeError(path, dir string, done, size int64, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // names the temporary file, which is gone by now
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		err = le.Err
	}
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return IOf("%s: write: %w", path, err)
	}
	free, _ := FreeSpace(dir)
	wanted := "more than " + IEC(done)
	if size >= 0 {
		wanted = IEC(size)
	}
	return Hint(IOf("%s: no space: %s wanted, %s available after %s were written: %w", path, wanted, IEC(free), IEC(done), err),
		MakeSpace)
}

func createError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return Hint(Inputf("%s: cannot be created: %w", path, err), "check that its directory exists and may be written")
		}
	}
	return IOf("%s: cannot be created: %w", path, err)
}
