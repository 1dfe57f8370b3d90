package tensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// File is an open safetensors file. Its methods may be called from several goroutines, except Close.
type File struct {
	path   string
	header header
	data   []byte // the mapping of the whole file; nil once closed
}

// Open checks the header of the file completely and maps the payload read-only; no weight is read.
// The views that Bytes gives live until Close.
func Open(path string) (*File, error) {
	f, size, err := format.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	n, err := headerLength(path, f, size)
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, format.IOf("%s: map %s: %w", path, format.IEC(size), err)
	}
	h, err := parseHeader(path, data[8:8+n], size-8-n)
	if err != nil {
		_ = unix.Munmap(data)
		return nil, err
	}
	return &File{path: path, header: h, data: data}, nil
}

// headerLength reads the first eight bytes and holds them against the size of the file.
func headerLength(path string, f *os.File, size int64) (int64, error) {
	var buf [1024]byte // as much as a Git LFS pointer may have
	head := buf[:min(size, int64(len(buf)))]
	if _, err := io.ReadFull(f, head); err != nil {
		return 0, format.IOf("%s: read the header length: %w", path, err)
	}
	if err := format.CheckLFS(path, head); err != nil {
		return 0, err
	}
	if size < 8 {
		return 0, format.Corruptf("%s: %d bytes are too few for a safetensors file", path, size)
	}
	n := binary.LittleEndian.Uint64(head)
	if n > format.MaxTensorHeader {
		return 0, format.Corruptf("%s: header length %d is more than the %d bytes allowed", path, n, format.MaxTensorHeader)
	}
	if int64(n) > size-8 {
		return 0, format.Corruptf("%s: header length %d is more than the %d bytes that follow it", path, n, size-8)
	}
	return int64(n), nil
}

// Path is the path that the file was opened by.
func (f *File) Path() string { return f.path }

// Names lists the tensors, sorted. The slice is the caller's.
func (f *File) Names() []string { return append([]string(nil), f.header.names...) }

// Info describes a tensor. The shape must not be changed.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.header.infos[name]
	return i, ok
}

// Metadata is a copy of the strings under __metadata__.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.meta) }

// Close ends the mapping; views into it must not be used any more.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	data := f.data
	f.data = nil
	if err := unix.Munmap(data); err != nil {
		return format.IOf("%s: unmap: %w", f.path, err)
	}
	return nil
}

// Bytes is a read-only view of a tensor in the mapping. It may begin at any address: an odd header is legal. Writing to it
// faults, and so does reading it after another process cut the file short.
func (f *File) Bytes(name string) ([]byte, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	return f.data[i.Begin:i.End:i.End], nil
}

// Release lets the kernel take back the pages of a tensor that was read, so that a pass over a model larger than memory
// keeps little resident. The views stay valid; reading them again reads the file again.
func (f *File) Release(name string) {
	i, err := f.info(name)
	if err != nil || i.Begin == i.End {
		return
	}
	page := int64(os.Getpagesize())
	lo := i.Begin / page * page
	_ = unix.Madvise(f.data[lo:i.End], unix.MADV_DONTNEED) // advice only
}

func (f *File) info(name string) (Info, error) {
	if f.data == nil {
		return Info{}, fmt.Errorf("%s: tensor %q wanted after the file was closed", f.path, name)
	}
	i, ok := f.header.infos[name]
	if !ok {
		return Info{}, format.Inputf("%s: has no tensor %q", f.path, name)
	}
	return i, nil
}

func (f *File) typed(name, dtype string) ([]byte, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	if i.DType != dtype {
		return nil, format.Inputf("%s: tensor %q is %s, not %s", f.path, name, i.DType, dtype)
	}
	return f.data[i.Begin:i.End], nil
}

// Entry is tensor name, which f has, for another file to take over as it is. f stays open until that file is written.
func (f *File) Entry(name string) Entry {
	in, _ := f.Info(name)
	return Entry{Name: name, DType: in.DType, Shape: in.Shape, Write: func(w io.Writer) error {
		b, err := f.Bytes(name)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}}
}
