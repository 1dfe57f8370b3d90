package tensors

import (
	"encoding/binary"
	"io"
	"math"
)

// F32 copies a tensor of dtype F32; the other dtypes are errors. F16, U64 and I32 do the same for theirs.
func (f *File) F32(name string) ([]float32, error) {
	b, err := f.typed(name, "F32")
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(b)/4)
	DecodeF32(out, b)
	return out, nil
}

// DecodeF32 reads len(dst) little-endian values from b, wherever b begins in memory.
func DecodeF32(dst []float32, b []byte) {
	b = b[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}

// DecodeU16 reads len(dst) little-endian values (bit patterns of F16 or BF16) from b, wherever b begins in memory.
func DecodeU16(dst []uint16, b []byte) {
	b = b[:2*len(dst)]
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
}

// F16 copies the bit patterns of a tensor of dtype F16.
func (f *File) F16(name string) ([]uint16, error) {
	b, err := f.typed(name, "F16")
	if err != nil {
		return nil, err
	}
	out := make([]uint16, len(b)/2)
	DecodeU16(out, b)
	return out, nil
}

// U64 copies a tensor of dtype U64.
func (f *File) U64(name string) ([]uint64, error) {
	b, err := f.typed(name, "U64")
	if err != nil {
		return nil, err
	}
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out, nil
}

// I32 copies a tensor of dtype I32.
func (f *File) I32(name string) ([]int32, error) {
	b, err := f.typed(name, "I32")
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(b)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out, nil
}

// F32Entry writes data as F32. The data is read when the file is written and must stay until then.
func F32Entry(name string, shape []int, data []float32) Entry {
	return Entry{name, "F32", shape, func(w io.Writer) error {
		return stream(w, len(data), 4, func(dst []byte, i int) { binary.LittleEndian.PutUint32(dst, math.Float32bits(data[i])) })
	}}
}

// F16Entry writes float16 bit patterns as F16.
func F16Entry(name string, shape []int, data []uint16) Entry {
	return Entry{name, "F16", shape, func(w io.Writer) error {
		return stream(w, len(data), 2, func(dst []byte, i int) { binary.LittleEndian.PutUint16(dst, data[i]) })
	}}
}

// U64Entry writes data as U64.
func U64Entry(name string, shape []int, data []uint64) Entry {
	return Entry{name, "U64", shape, func(w io.Writer) error {
		return stream(w, len(data), 8, func(dst []byte, i int) { binary.LittleEndian.PutUint64(dst, data[i]) })
	}}
}

// I32Entry writes data as I32.
func I32Entry(name string, shape []int, data []int32) Entry {
	return Entry{name, "I32", shape, func(w io.Writer) error {
		return stream(w, len(data), 4, func(dst []byte, i int) { binary.LittleEndian.PutUint32(dst, uint32(data[i])) })
	}}
}

// stream encodes n values of size bytes each through one small buffer.
func stream(w io.Writer, n, size int, put func(dst []byte, i int)) error {
	const chunk = 64 << 10
	buf := make([]byte, min(n*size, chunk))
	for i := 0; i < n; {
		m := min(n-i, chunk/size)
		for j := range m {
			put(buf[j*size:], i+j)
		}
		if _, err := w.Write(buf[:m*size]); err != nil {
			return err
		}
		i += m
	}
	return nil
}
