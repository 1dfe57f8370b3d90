package importer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// publisher holds the temporary directory beside the target. It is locked as long as this process works on it, so that one that a killed run left behind is
// told from one in use.
type publisher struct {
	dir  string // temporary
	out  string // target, symbolic links resolved
	lock *os.File
}

// outputs are all names that an import may write; a target that holds anything else is not ours to replace.
var outputs = []string{configName, generationName, tokenizerName, tokConfigName, templateName, weightsName}

// newPublisher checks the target and the space for size bytes, and makes the temporary directory.
func newPublisher(outDir string, size int64) (*publisher, error) {
	out, err := target(outDir)
	if err != nil {
		return nil, err
	}
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, refused(outDir, err)
	}
	prefix := "." + filepath.Base(out) + ".import-"
	if err := sweep(outDir, parent, prefix); err != nil {
		return nil, err
	}
	if err := format.CheckSpace(parent, size); err != nil {
		return nil, err
	}
	var r [8]byte
	if _, err := rand.Read(r[:]); err != nil {
		return nil, format.IOf("%s: %w", outDir, err)
	}
	p := &publisher{dir: filepath.Join(parent, prefix+hex.EncodeToString(r[:])), out: out}
	if err := os.Mkdir(p.dir, 0o777); err != nil {
		return nil, refused(outDir, err)
	}
	if p.lock, err = lockDir(p.dir); err != nil {
		os.Remove(p.dir)
		return nil, format.IOf("%s: lock: %w", p.dir, err)
	}
	return p, nil
}

// target resolves outDir and refuses what an import must not replace.
func target(outDir string) (string, error) {
	if outDir == "" {
		return "", format.Inputf("the output directory has no name")
	}
	out, err := filepath.Abs(outDir)
	if err != nil {
		return "", format.IOf("%s: %w", outDir, err)
	}
	if real, err := filepath.EvalSymlinks(out); err == nil {
		out = real
	}
	st, err := os.Lstat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		return "", refused(outDir, err)
	case !st.IsDir():
		return "", format.Hint(format.Inputf("%s: is a file, a checkpoint is a directory", outDir), "choose another output directory")
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return "", refused(outDir, err)
	}
	for _, e := range entries {
		if !slices.Contains(outputs, e.Name()) {
			return "", format.Hint(format.Inputf("%s: holds %q, which an import does not write and would have to remove", outDir, e.Name()), "choose another output directory")
		}
	}
	return out, nil
}

// sweep removes what killed runs left and refuses while another run is at work on the same target.
func sweep(outDir, parent, prefix string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return refused(outDir, err)
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		old := filepath.Join(parent, e.Name())
		lock, err := lockDir(old)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return format.Hint(format.Inputf("%s: another import is writing it", outDir), "wait for it to end")
		}
		if err != nil {
			continue // gone meanwhile, or not ours
		}
		err = os.RemoveAll(old)
		lock.Close()
		if err != nil {
			return format.IOf("%s: remove: %w", old, err)
		}
	}
	return nil
}

// lockDir takes the lock of a directory without waiting. Closing the file frees it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// publish puts the finished directory in the target's place.
func (p *publisher) publish() error {
	if err := format.SyncDir(p.dir); err != nil {
		return err
	}
	err := os.Rename(p.dir, p.out) // takes the place of nothing, or of an empty directory
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		err = exchange(p.dir, p.out)
	}
	if err != nil {
		return format.IOf("%s: publish: %w", p.out, err)
	}
	return format.SyncDir(filepath.Dir(p.out))
}

// discard removes the temporary directory, which after an exchange holds the earlier output.
func (p *publisher) discard() {
	os.RemoveAll(p.dir)
	p.lock.Close()
}

// refused explains why a place cannot be written.
func refused(outDir string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	for _, e := range []error{fs.ErrPermission, fs.ErrNotExist, unix.EROFS, unix.ENOTDIR, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return format.Hint(format.Inputf("%s: cannot be written: %w", outDir, err), "choose an output directory that may be written")
		}
	}
	return format.IOf("%s: %w", outDir, err)
}
