package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

// DropCache asks the kernel to forget the pages of a file that it keeps in memory. It is advice: nothing depends on it.
func DropCache(path string) {
	if f, err := os.Open(path); err == nil {
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
	}
}
