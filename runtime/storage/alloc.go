package storage

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

const hugePage = 2 << 20

// AllocAligned returns n bytes of zeroed memory outside the Go heap and the function that gives them back. The address is a
// multiple of the page size, from 2 MiB on of 2 MiB, with advice to use huge pages.
func AllocAligned(n int) ([]byte, func(), error) {
	if n <= 0 {
		return nil, func() {}, nil
	}
	page := os.Getpagesize()
	size := uintptr(n+page-1) &^ uintptr(page-1)
	reserve := size
	if n >= hugePage {
		reserve += hugePage // address space only: the ends are given back at once
	}
	p, err := unix.MmapPtr(-1, 0, nil, reserve, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, format.Fitf("allocate %d bytes: mmap: %v", n, err)
	}
	if reserve > size {
		head := -uintptr(p) & (hugePage - 1)
		if head > 0 {
			unix.MunmapPtr(p, head)
		}
		if tail := reserve - size - head; tail > 0 {
			unix.MunmapPtr(unsafe.Add(p, head+size), tail)
		}
		p = unsafe.Add(p, head)
		unix.Madvise(unsafe.Slice((*byte)(p), size), unix.MADV_HUGEPAGE) // advice: a kernel without huge pages refuses it
	}
	freed := false
	return unsafe.Slice((*byte)(p), n), func() {
		if !freed {
			freed = true
			unix.MunmapPtr(p, size)
		}
	}, nil
}

// address is where b begins, for alignment checks.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
