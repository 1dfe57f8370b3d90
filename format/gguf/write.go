package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// maxWrittenName is what ggml reads of a tensor's name: 64 bytes with the zero at the end.
const maxWrittenName = 63

// Pair is one key of a header to be written. Its value is a uint32, uint64, int32, float32, bool, string, []string, []int32 or []float32.
type Pair struct {
	Key   string
	Value any
}

// Entry is one tensor to be written. Write streams exactly its bytes, little endian.
type Entry struct {
	Name  string
	Type  string // ggml's name of the type
	Shape []int  // row-major, outermost first
	Write func(w io.Writer) error
}

// Write makes path a GGUF file, version 3, of the keys and entries in the order given, through a temporary sibling that is renamed when it is complete.
// Entries are asked for their bytes one after the other; nothing is collected in memory.
func Write(path string, keys []Pair, entries []Entry) error {
	h, sizes, err := encodeHeader(keys, entries)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	total := int64(len(h))
	for _, n := range sizes {
		total += padded(n)
	}
	return format.WriteFileAtomicSize(path, total, func(w io.Writer) error {
		if err := encode(w, h, entries, sizes); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

func padded(n int64) int64 { return (n + DefaultAlignment - 1) / DefaultAlignment * DefaultAlignment }

func encode(w io.Writer, h []byte, entries []Entry, sizes []int64) error {
	if _, err := w.Write(h); err != nil {
		return err
	}
	var zeros [DefaultAlignment]byte
	for i, e := range entries {
		cw := &exactWriter{w: w, left: sizes[i]}
		if err := e.Write(cw); err != nil {
			return fmt.Errorf("tensor %q: %w", e.Name, err)
		}
		if cw.left != 0 {
			return fmt.Errorf("tensor %q: %d bytes fewer were written than its shape %v of %s takes", e.Name, cw.left, e.Shape, e.Type)
		}
		if _, err := w.Write(zeros[:padded(sizes[i])-sizes[i]]); err != nil {
			return err
		}
	}
	return nil
}

// encodeHeader is everything before the data, padded to the alignment, and the size of every tensor.
func encodeHeader(keys []Pair, entries []Entry) (h []byte, sizes []int64, err error) {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put(&b, uint32(3))
	put(&b, uint64(len(entries)))
	put(&b, uint64(len(keys)))
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.Key] || k.Key == "" || len(k.Key) > MaxKeyBytes || k.Key == "general.alignment" {
			return nil, nil, fmt.Errorf("key %q: empty, too long, reserved or given twice", k.Key)
		}
		seen[k.Key] = true
		putString(&b, k.Key)
		if err := putValue(&b, k.Value); err != nil {
			return nil, nil, fmt.Errorf("key %q: %w", k.Key, err)
		}
	}
	clear(seen)
	at := int64(0)
	for _, e := range entries {
		if seen[e.Name] || e.Name == "" || len(e.Name) > maxWrittenName || !utf8.ValidString(e.Name) {
			return nil, nil, fmt.Errorf("tensor %q: name is empty, longer than %d bytes, not UTF-8 or used twice", e.Name, maxWrittenName)
		}
		seen[e.Name] = true
		kind, size, err := sizeOf(e)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", e.Name, err)
		}
		putString(&b, e.Name)
		put(&b, uint32(len(e.Shape)))
		for i := range e.Shape { // innermost first
			put(&b, uint64(e.Shape[len(e.Shape)-1-i]))
		}
		put(&b, kind)
		put(&b, uint64(at))
		if at += padded(size); at < 0 || at > 1<<62 {
			return nil, nil, fmt.Errorf("tensor %q: the file would be too large", e.Name)
		}
		sizes = append(sizes, size)
	}
	b.Write(make([]byte, padded(int64(b.Len()))-int64(b.Len())))
	if b.Len() > MaxHeaderBytes {
		return nil, nil, fmt.Errorf("header of %d bytes, limit %d", b.Len(), MaxHeaderBytes)
	}
	return b.Bytes(), sizes, nil
}

// sizeOf is a tensor's type number and its size in bytes.
func sizeOf(e Entry) (kind uint32, size int64, err error) {
	var t blockType
	for k, x := range types {
		if x.Name == e.Type {
			kind, t = k, x
		}
	}
	switch {
	case t.Bytes == 0:
		return 0, 0, fmt.Errorf("type %q is not known", e.Type)
	case len(e.Shape) < 1 || len(e.Shape) > MaxDims:
		return 0, 0, fmt.Errorf("%d dimensions, 1 to %d are possible", len(e.Shape), MaxDims)
	}
	n := int64(1)
	for _, d := range e.Shape {
		if d < 1 || int64(d) > math.MaxInt64/int64(t.Bytes)/n {
			return 0, 0, fmt.Errorf("shape %v", e.Shape)
		}
		n *= int64(d)
	}
	if e.Shape[len(e.Shape)-1]%t.Values != 0 {
		return 0, 0, fmt.Errorf("rows of %d values do not divide into %s blocks of %d", e.Shape[len(e.Shape)-1], t.Name, t.Values)
	}
	return kind, n / int64(t.Values) * int64(t.Bytes), nil
}

func put(b *bytes.Buffer, v any) { _ = binary.Write(b, binary.LittleEndian, v) } // a buffer takes everything

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// putValue writes a value behind the number of its kind.
func putValue(b *bytes.Buffer, v any) error {
	scalar := func(kind uint32) { put(b, kind); put(b, v) }
	list := func(kind uint32, n int) { put(b, uint32(kindArray)); put(b, kind); put(b, uint64(n)) }
	switch x := v.(type) {
	case uint32:
		scalar(kindUint32)
	case int32:
		scalar(kindInt32)
	case uint64:
		scalar(kindUint64)
	case float32:
		scalar(kindFloat32)
	case bool:
		scalar(kindBool)
	case string:
		put(b, uint32(kindString))
		putString(b, x)
	case []int32:
		list(kindInt32, len(x))
		put(b, x)
	case []float32:
		list(kindFloat32, len(x))
		put(b, x)
	case []string:
		list(kindString, len(x))
		for _, s := range x {
			putString(b, s)
		}
	default:
		return fmt.Errorf("a value of type %T cannot be written", v)
	}
	return nil
}

// exactWriter refuses more than left bytes.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		return 0, fmt.Errorf("%d bytes more were written than its shape takes", int64(len(p))-e.left)
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}
