package gguf

import (
	"fmt"

	"neuroprefetcher/format"
)

// pieceBytes is how much of a tensor is read at once.
const pieceBytes = 256 << 10

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Path is the path the file was opened with.
func (f *File) Path() string { return f.path }

// Find returns the tensor of that name.
func (f *File) Find(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Rows is the number of rows: all dimensions but the innermost.
func (t Tensor) Rows() int {
	n := 1
	for _, s := range t.Shape[:len(t.Shape)-1] {
		n *= s
	}
	return n
}

// Cols is the length of a row.
func (t Tensor) Cols() int { return t.Shape[len(t.Shape)-1] }

// ReadF32 dequantises rows [lo, hi) of t into dst, which has (hi-lo)·Cols elements. A row runs along the innermost dimension.
// A range or a dst that does not fit the tensor is the caller's mistake and panics.
func (f *File) ReadF32(t Tensor, lo, hi int, dst []float32) error {
	k, ok := byName(t.Type)
	if !ok || k.decode == nil {
		return format.Inputf("%s: tensor %q: type %s is not supported", f.path, t.Name, t.Type)
	}
	cols := t.Cols()
	if lo < 0 || hi < lo || hi > t.Rows() || len(dst) != (hi-lo)*cols {
		panic(fmt.Sprintf("gguf: tensor %q: rows %d to %d of %d into %d values", t.Name, lo, hi, t.Rows(), len(dst)))
	}
	off := t.Offset + int64(lo)*int64(cols/k.Values*k.Bytes)
	piece := max(1, pieceBytes/k.Bytes) // blocks read at once
	buf := make([]byte, min(piece, len(dst)/k.Values)*k.Bytes)
	for len(dst) > 0 {
		blocks := min(piece, len(dst)/k.Values)
		b := buf[:blocks*k.Bytes]
		if _, err := f.r.ReadAt(b, off); err != nil {
			return format.IOf("%s: tensor %q: read of %d bytes at offset %d: %v", f.path, t.Name, len(b), off, err)
		}
		k.decode(dst[:blocks*k.Values], b)
		dst, off = dst[blocks*k.Values:], off+int64(len(b))
	}
	return nil
}
