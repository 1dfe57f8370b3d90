package importer

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchange swaps two directories in one step, so that there is no moment without an output.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return replace(a, b) // a file system or kernel that cannot
	}
	return err
}
