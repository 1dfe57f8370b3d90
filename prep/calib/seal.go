package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
)

// A unit is a file that an interrupted stage need not make again. It is trusted by its recorded checksum, which lies
// beside it in a note (a name with a leading dot, which the stage removes when it is done), never because it exists.
func notePath(path string) string {
	return filepath.Join(filepath.Dir(path), ".sha256-"+filepath.Base(path))
}

// Seal records the checksums of a unit's files, which are whole and in place.
func Seal(paths ...string) error {
	for _, path := range paths {
		sum, err := sumFile(path)
		if err != nil {
			return err
		}
		if err := format.WriteFileAtomic(notePath(path), func(w io.Writer) error {
			_, err := io.WriteString(w, sum)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Sealed reports whether all files of a unit have their recorded checksums.
func Sealed(paths ...string) bool {
	for _, path := range paths {
		want, err := format.ReadFile(notePath(path), 2*sha256.Size)
		if err != nil {
			return false
		}
		if got, err := sumFile(path); err != nil || got != string(want) {
			return false
		}
	}
	return true
}

func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", format.IOf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Bring makes the finished file src also dst: by a hard link where one file system holds both, else by a copy. Neither
// is written again in place.
func Bring(src, dst string) error {
	if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return format.IOf("%w", err)
	}
	if os.Link(src, dst) == nil {
		return nil
	}
	f, size, err := format.OpenRegular(src)
	if err != nil {
		return err
	}
	defer f.Close()
	return format.WriteFileAtomicSize(dst, size, func(w io.Writer) error {
		if _, err := io.Copy(w, f); err != nil {
			return format.IOf("%s: %w", src, err)
		}
		return nil
	})
}
