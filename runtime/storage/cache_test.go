package storage

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cached counts the pages of a file that are in memory.
func cached(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	in := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, b := range in {
		n += int(b & 1)
	}
	return n
}

func TestDropCache(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if n := cached(t, path); n < 512 {
		t.Skipf("NO PAGE CACHE HERE: %d pages of a file just read", n)
	}
	DropCache(path)
	if n := cached(t, path); n > 0 {
		t.Errorf("%d pages are still there", n)
	}
	DropCache(path + ".missing")
}
