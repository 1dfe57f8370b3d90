package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const lfsMark = "version https://git-lfs"

// IsLFSPointer reports whether a file that begins with head is the stub that Git LFS leaves in the place of a file that
// was not downloaded.
func IsLFSPointer(head []byte) bool { return bytes.HasPrefix(head, []byte(lfsMark)) }

// CheckLFS refuses a file that begins with head if it is a Git LFS pointer, and shows the pointer's size line.
func CheckLFS(path string, head []byte) error {
	if !IsLFSPointer(head) {
		return nil
	}
	size := "it names no size"
	for _, line := range strings.Split(string(head), "\n") {
		if s, ok := strings.CutPrefix(line, "size "); ok {
			size = fmt.Sprintf("its line is %q", "size "+strings.TrimSpace(s))
			break
		}
	}
	return Hint(Inputf("%s: this is a git-lfs pointer, the real file was not downloaded (%s)", path, size),
		"fetch the real file, for example with git lfs pull")
}

// lfsHead bounds what is read of a file to recognise a pointer; the LFS specification keeps pointers below 1024 bytes.
const lfsHead = 1024

// ReadFile reads a regular file of at most limit bytes, and refuses a Git LFS pointer in its place.
// An absent file gives an error that also is fs.ErrNotExist.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, Inputf("%s: %s is more than the %s allowed for such a file", path, IEC(size), IEC(limit))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, IOf("%s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, Inputf("%s: grew beyond %s while it was read", path, IEC(limit))
	}
	if err := CheckLFS(path, data[:min(len(data), lfsHead)]); err != nil {
		return nil, err
	}
	return data, nil
}

// OpenRegular opens a regular file (or a link to one) and returns its size.
func OpenRegular(path string) (*os.File, int64, error) {
	// Stat first: opening a FIFO would block.
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		return nil, 0, Inputf("%s: not a regular file (%s)", path, st.Mode().Type())
	}
	if err != nil {
		return nil, 0, openError(path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, openError(path, err)
	}
	if st, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, openError(path, err)
	}
	return f, st.Size(), nil
}

func openError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the message names the path already
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return Inputf("%s: %w", path, err)
	}
	return IOf("%s: %w", path, err)
}

// IEC writes a number of bytes in binary units, for messages.
func IEC(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1023.95 && u < 5 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[u])
}
