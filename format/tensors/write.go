package tensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/nlpodyssey/safetensors"

	"neuroprefetcher/format"
)

// payloadAlign is where the payload begins: a multiple of a cache line, so that mapped tensors can be read in place.
const payloadAlign = 64

// Write makes path a safetensors file of the entries in the order given, through a temporary sibling that is renamed when
// it is complete. Entries are asked for their bytes one after the other; nothing is collected in memory.
func Write(path string, entries []Entry, meta map[string]string) error {
	h, sizes, err := encodeHeader(entries, meta)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	total := 8 + int64(len(h))
	for _, n := range sizes {
		total += n
	}
	return format.WriteFileAtomicSize(path, total, func(w io.Writer) error {
		if err := encode(w, h, entries, sizes); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// Encode streams the same bytes as Write to w.
func Encode(w io.Writer, entries []Entry, meta map[string]string) error {
	h, sizes, err := encodeHeader(entries, meta)
	if err != nil {
		return err
	}
	return encode(w, h, entries, sizes)
}

func encode(w io.Writer, h []byte, entries []Entry, sizes []int64) error {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(h)))
	if _, err := w.Write(append(n[:], h...)); err != nil {
		return err
	}
	for i, e := range entries {
		cw := &exactWriter{w: w, left: sizes[i]}
		if err := e.Write(cw); err != nil {
			return fmt.Errorf("tensor %q: %w", e.Name, err)
		}
		if cw.left != 0 {
			return fmt.Errorf("tensor %q: %d bytes fewer were written than its shape %v of %s takes", e.Name, cw.left, e.Shape, e.DType)
		}
	}
	return nil
}

// encodeHeader lays the entries out one after the other and pads the header with spaces to payloadAlign.
func encodeHeader(entries []Entry, meta map[string]string) (h []byte, sizes []int64, err error) {
	obj := make(map[string]any, len(entries)+1)
	var at uint64
	for _, e := range entries {
		dt, err := safetensors.ParseDType(e.DType)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", e.Name, err)
		}
		dims := make([]uint64, len(e.Shape)) // not nil: a scalar's shape is written []
		for i, d := range e.Shape {
			if d < 0 {
				return nil, nil, fmt.Errorf("tensor %q: negative dimension in shape %v", e.Name, e.Shape)
			}
			dims[i] = uint64(d)
		}
		_, n, ok := byteSize(dims, dt)
		if !ok || at+n < at || at+n > 1<<62 {
			return nil, nil, fmt.Errorf("tensor %q: shape %v overflows", e.Name, e.Shape)
		}
		if _, dup := obj[e.Name]; dup || e.Name == "__metadata__" {
			return nil, nil, fmt.Errorf("tensor %q: name is used twice or reserved", e.Name)
		}
		obj[e.Name] = safetensors.TensorInfo{DType: dt, Shape: dims, DataOffsets: [2]uint64{at, at + n}}
		at += n
		sizes = append(sizes, int64(n))
	}
	if len(meta) > 0 {
		obj["__metadata__"] = meta
	}
	if h, err = json.Marshal(obj); err != nil { // keys sorted: the same entries give the same bytes
		return nil, nil, err
	}
	h = append(h, bytes.Repeat([]byte{' '}, (payloadAlign-(8+len(h))%payloadAlign)%payloadAlign)...)
	if len(h) > format.MaxTensorHeader {
		return nil, nil, fmt.Errorf("header of %d bytes is more than the %d allowed", len(h), format.MaxTensorHeader)
	}
	return h, sizes, nil
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
