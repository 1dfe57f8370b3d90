package gguf

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// Open reads and checks the header of a GGUF file. Every refusal names the file and the key or tensor.
func Open(path string) (*File, error) {
	f, size, err := format.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	g, err := parse(path, f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	g.r, g.close = f, f.Close
	return g, nil
}

// parse reads the header from r, a file of size bytes.
func parse(path string, r io.Reader, size int64) (*File, error) {
	d := &decoder{r: bufio.NewReaderSize(r, 1<<16), path: path, size: size, what: "header"}
	head, _ := d.r.Peek(1024)
	if err := format.CheckLFS(path, head); err != nil {
		return nil, err
	}
	switch {
	case len(head) < 24:
		return nil, format.Inputf("%s: %d bytes are too few for a gguf file", path, size)
	case string(head[:4]) != "GGUF":
		return nil, format.Inputf("%s: not a gguf file: it begins with %q", path, head[:4])
	}
	d.u32()
	g := &File{KV: map[string]any{}, path: path, size: size, index: map[string]int{}}
	version := d.u32()
	switch {
	case version == 2 || version == 3:
		g.Version = int(version)
	case version&0xffff == 0 && version != 0:
		return nil, format.Inputf("%s: big-endian gguf is not supported", path)
	default:
		return nil, format.Inputf("%s: gguf version %d is not supported (2 and 3 are)", path, version)
	}
	tensors, keys := d.u64(), d.u64()
	if tensors > MaxTensors {
		return nil, format.Corruptf("%s: header: %d tensors, limit %d", path, tensors, MaxTensors)
	}
	if keys > MaxKeys {
		return nil, format.Corruptf("%s: header: %d keys, limit %d", path, keys, MaxKeys)
	}
	// The smallest key takes 8 + 1 + 4 + 1 bytes, the smallest tensor 8 + 1 + 4 + 8 + 4 + 8.
	if !d.room(int64(keys)*14 + int64(tensors)*33) {
		return nil, d.err
	}
	g.readKeys(d, keys)
	align := g.alignment(d)
	g.readTensors(d, tensors)
	if d.err != nil {
		return nil, d.err
	}
	if err := g.place(d.pos, align); err != nil {
		return nil, err
	}
	return g, nil
}

func (f *File) readKeys(d *decoder, n uint64) {
	for i := range n {
		d.what = fmt.Sprintf("key %d", i)
		key := d.str(MaxKeyBytes)
		if d.err != nil {
			return
		}
		d.what = fmt.Sprintf("key %q", key)
		if key == "" || !utf8.ValidString(key) {
			d.fail("not a valid key")
			return
		}
		if _, dup := f.KV[key]; dup {
			d.fail("appears twice")
			return
		}
		v := d.value(d.u32())
		if d.err != nil {
			return
		}
		f.KV[key] = v
	}
}

// alignment of tensor data, from the header.
func (f *File) alignment(d *decoder) int64 {
	v, ok := f.KV["general.alignment"]
	if !ok {
		return DefaultAlignment
	}
	d.what = `key "general.alignment"`
	a, ok := v.(uint32)
	if !ok || a == 0 || a&(a-1) != 0 || a > MaxAlignment {
		d.fail("%v is not a power of two up to %d", v, MaxAlignment)
	}
	return int64(a)
}

func (f *File) readTensors(d *decoder, n uint64) {
	for i := range n {
		d.what = fmt.Sprintf("tensor %d", i)
		name := d.str(MaxNameBytes)
		if d.err != nil {
			return
		}
		d.what = fmt.Sprintf("tensor %q", name)
		if name == "" || !utf8.ValidString(name) {
			d.fail("not a valid name")
		}
		if _, dup := f.index[name]; dup {
			d.fail("appears twice")
		}
		dims := d.u32()
		if dims == 0 || dims > MaxDims {
			d.fail("%d dimensions, 1 to %d are possible", dims, MaxDims)
			return
		}
		shape, elems := make([]int, dims), int64(1)
		for k := range shape {
			ne := d.u64()
			if ne == 0 || ne > math.MaxInt64/8/uint64(elems) {
				d.fail("dimension %d is %d", k, ne)
				return
			}
			elems *= int64(ne)
			shape[int(dims)-1-k] = int(ne)
		}
		kind, off := d.u32(), d.u64()
		if d.err != nil {
			return
		}
		t, ok := types[kind]
		if !ok {
			d.fail("unknown tensor type %d", kind)
			return
		}
		if row := shape[dims-1]; row%t.Values != 0 {
			d.fail("rows of %d values do not divide into %s blocks of %d", row, t.Name, t.Values)
			return
		}
		blocks := elems / int64(t.Values)
		if blocks > f.size/int64(t.Bytes) || off > uint64(f.size) {
			d.fail("%d blocks of %d bytes at offset %d are more than the file of %d bytes holds", blocks, t.Bytes, off, f.size)
			return
		}
		f.index[name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, Tensor{Name: name, Type: t.Name, Shape: shape, Offset: int64(off), Size: blocks * int64(t.Bytes)})
	}
}

// place turns offsets relative to the data section into offsets in the file and checks that tensors are aligned, inside, and apart.
func (f *File) place(headerEnd, align int64) error {
	if len(f.Tensors) == 0 {
		return nil
	}
	start := (headerEnd + align - 1) / align * align
	order := make([]int, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset%align != 0 {
			return format.Corruptf("%s: tensor %q: offset %d is not a multiple of the alignment %d", f.path, t.Name, t.Offset, align)
		}
		t.Offset += start
		if t.Offset > f.size || t.Size > f.size-t.Offset {
			return format.Corruptf("%s: tensor %q: ends at byte %d, the file has %d: it is truncated or damaged", f.path, t.Name, t.Offset+t.Size, f.size)
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := f.Tensors[a].Offset, f.Tensors[b].Offset; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	for k := 1; k < len(order); k++ {
		a, b := f.Tensors[order[k-1]], f.Tensors[order[k]]
		if a.Offset+a.Size > b.Offset {
			return format.Corruptf("%s: tensor %q: overlaps tensor %q at byte %d", f.path, b.Name, a.Name, b.Offset)
		}
	}
	return nil
}
