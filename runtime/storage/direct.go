package storage

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// trialAligns are tried by reading where the kernel does not tell the alignment: 512 bytes, the usual, then a page.
var trialAligns = []int{512, 4096}

// maxAlign is the largest alignment we widen to.
const maxAlign = 64 << 10

// file is an open file and how it may be read.
type file struct {
	path   string
	fd     int
	size   int64
	direct bool
	align  int   // of offsets and lengths; 1 when buffered
	probes Stats // what finding out cost
	notes  []string
}

// openFile opens path the way mode says. O_DIRECT refused at open, or only by the first read, leads to the page cache with a
// note, or, with mode "require", to an error. Any other failure is an error.
func openFile(path, mode string) (*file, error) {
	f := &file{path: path, fd: -1, align: 1}
	var refused error
	if mode != "off" {
		if refused = f.openDirect(); refused == nil {
			return f, nil
		}
		f.close()
		if !errors.Is(refused, unix.EINVAL) && !errors.Is(refused, unix.EOPNOTSUPP) {
			return nil, ioError(path, refused)
		}
		if mode == "require" {
			return nil, format.Hint(format.IOf("%s: O_DIRECT refused: %w", path, refused), "put the file on a file system with O_DIRECT (ext4, xfs on a drive), or do not require it")
		}
	}
	if err := f.open(0); err != nil {
		return nil, ioError(path, err)
	}
	if err := f.probe(1); err != nil {
		f.close()
		return nil, ioError(path, err)
	}
	f.direct, f.align = false, 1
	unix.Fadvise(f.fd, 0, 0, unix.FADV_RANDOM) // advice; readahead would fetch what nobody asked for
	if refused != nil {
		f.notes = append(f.notes, fmt.Sprintf("%s: O_DIRECT refused (%v), reading through the page cache; put the file on ext4 or xfs on a drive", path, refused))
	}
	return f, nil
}

func (f *file) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

func (f *file) open(flags int) error {
	var err error
	for {
		if f.fd, err = unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.fd = -1
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFBLK {
		return unix.EISDIR
	}
	f.size, err = unix.Seek(f.fd, 0, io.SeekEnd) // works for block devices too
	return err
}

// openDirect opens with O_DIRECT and finds the alignment, proving it by a read.
func (f *file) openDirect() error {
	if err := f.open(unix.O_DIRECT); err != nil {
		return err
	}
	f.direct = true
	aligns := trialAligns
	if a, known := f.statAlign(); known {
		if a == 0 || a > maxAlign {
			return unix.EOPNOTSUPP
		}
		aligns = append([]int{a}, trialAligns...)
	}
	err := error(unix.EOPNOTSUPP)
	for _, a := range aligns {
		if a < f.align { // statx asked for more, and that was refused
			continue
		}
		f.align = a
		if err = f.probe(a); err == nil || !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	return err
}

// statAlign asks the kernel (6.1 and later) for the alignment of O_DIRECT on this file; 0 means that it cannot be had.
func (f *file) statAlign() (align int, known bool) {
	var st unix.Statx_t
	err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0, false
	}
	a := max(st.Dio_offset_align, st.Dio_mem_align)
	if a&(a-1) != 0 {
		return 0, true
	}
	return int(a), true
}

// probe reads the first n bytes once. The memory is aligned well enough for any drive.
func (f *file) probe(n int) error {
	buf, free, err := AllocAligned(max(n, os.Getpagesize()))
	if err != nil {
		return err
	}
	defer free()
	for {
		if _, err = unix.Pread(f.fd, buf[:n], 0); err != unix.EINTR {
			break
		}
	}
	if err == nil && f.size > 0 {
		f.probes.Reads++
		f.probes.Bytes += int64(n)
	}
	return err
}

// ioError names the file; a file that is not there or may not be read is bad input, the rest a failure of the drive.
func ioError(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return format.Inputf("open %s: %w", path, err)
	}
	return format.IOf("open %s: %w", path, err)
}
