package gguf

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"neuroprefetcher/format"
)

// The numbers of value types in the header.
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// width is the fewest bytes a value of that kind takes in the file; 0 for an unknown kind.
func width(kind uint32) int64 {
	switch kind {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64, kindString:
		return 8
	case kindArray:
		return 12
	}
	return 0
}

// decoder walks the header. It stays failed: after an error every read returns zero and err keeps the first one.
type decoder struct {
	r    *bufio.Reader
	path string
	size int64 // of the file
	pos  int64
	what string // what is being read, for messages: a key or a tensor
	err  error
	word [8]byte // scratch for numbers
}

func (d *decoder) fail(f string, a ...any) {
	if d.err == nil {
		d.err = format.Corruptf("%s: %s: "+f, append([]any{d.path, d.what}, a...)...)
	}
}

// room says whether n more bytes are there to be read, within the file and the header's limit.
func (d *decoder) room(n int64) bool {
	if d.err != nil {
		return false
	}
	if n < 0 || n > d.size-d.pos {
		d.fail("needs %d bytes at offset %d, the file ends at %d", n, d.pos, d.size)
		return false
	}
	if d.pos+n > MaxHeaderBytes {
		d.fail("header is longer than %d bytes", MaxHeaderBytes)
		return false
	}
	return true
}

// read fills b.
func (d *decoder) read(b []byte) {
	if !d.room(int64(len(b))) {
		clear(b)
		return
	}
	n, err := io.ReadFull(d.r, b)
	d.pos += int64(n)
	if err != nil && d.err == nil {
		d.err = format.IOf("%s: %s: read at offset %d: %v", d.path, d.what, d.pos, err)
	}
}

func (d *decoder) u8() uint8   { d.read(d.word[:1]); return d.word[0] }
func (d *decoder) u16() uint16 { d.read(d.word[:2]); return binary.LittleEndian.Uint16(d.word[:]) }
func (d *decoder) u32() uint32 { d.read(d.word[:4]); return binary.LittleEndian.Uint32(d.word[:]) }
func (d *decoder) u64() uint64 { d.read(d.word[:8]); return binary.LittleEndian.Uint64(d.word[:]) }

// str reads a string of at most limit bytes.
func (d *decoder) str(limit uint64) string {
	n := d.u64()
	if d.err != nil {
		return ""
	}
	if n > limit {
		d.fail("string of %d bytes, limit %d", n, limit)
		return ""
	}
	if !d.room(int64(n)) {
		return ""
	}
	b := make([]byte, n)
	d.read(b)
	return string(b)
}

func (d *decoder) boolean() bool {
	b := d.u8()
	if b > 1 {
		d.fail("boolean has the value %d", b)
	}
	return b == 1
}

// value reads one value of a kind that the header names.
func (d *decoder) value(kind uint32) any {
	switch kind {
	case kindUint8:
		return d.u8()
	case kindInt8:
		return int8(d.u8())
	case kindUint16:
		return d.u16()
	case kindInt16:
		return int16(d.u16())
	case kindUint32:
		return d.u32()
	case kindInt32:
		return int32(d.u32())
	case kindFloat32:
		return math.Float32frombits(d.u32())
	case kindBool:
		return d.boolean()
	case kindString:
		return d.str(MaxStringBytes)
	case kindUint64:
		return d.u64()
	case kindInt64:
		return int64(d.u64())
	case kindFloat64:
		return math.Float64frombits(d.u64())
	case kindArray:
		return d.array()
	}
	d.fail("unknown value type %d", kind)
	return nil
}

// array reads an array of scalars or strings.
func (d *decoder) array() any {
	kind, n := d.u32(), d.u64()
	if d.err != nil {
		return nil
	}
	w := width(kind)
	switch {
	case w == 0:
		d.fail("array of the unknown value type %d", kind)
		return nil
	case kind == kindArray:
		d.fail("array of arrays is not supported")
		return nil
	case n > MaxArrayLen:
		d.fail("array of %d elements, limit %d", n, MaxArrayLen)
		return nil
	case !d.room(int64(n) * w):
		return nil
	}
	switch kind {
	case kindUint8:
		return elements(d, n, d.u8)
	case kindInt8:
		return elements(d, n, func() int8 { return int8(d.u8()) })
	case kindUint16:
		return elements(d, n, d.u16)
	case kindInt16:
		return elements(d, n, func() int16 { return int16(d.u16()) })
	case kindUint32:
		return elements(d, n, d.u32)
	case kindInt32:
		return elements(d, n, func() int32 { return int32(d.u32()) })
	case kindFloat32:
		return elements(d, n, func() float32 { return math.Float32frombits(d.u32()) })
	case kindBool:
		return elements(d, n, d.boolean)
	case kindUint64:
		return elements(d, n, d.u64)
	case kindInt64:
		return elements(d, n, func() int64 { return int64(d.u64()) })
	case kindFloat64:
		return elements(d, n, func() float64 { return math.Float64frombits(d.u64()) })
	}
	return elements(d, n, func() string { return d.str(MaxStringBytes) })
}

// elements reads n values; the caller has checked n against the file.
func elements[T any](d *decoder, n uint64, next func() T) []T {
	s := make([]T, n)
	for i := range s {
		if s[i] = next(); d.err != nil {
			return nil
		}
	}
	return s
}
