package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"
)

// Numbers of tensor types.
var Types = map[string]uint32{
	"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "BF16": 30,
}

// KV is one key with its value: a Go number, bool, string, or a slice of one of these.
type KV struct {
	Key   string
	Value any
}

// Tensor is one entry of the table. Dims are in the file's order, innermost first.
type Tensor struct {
	Name   string
	Type   uint32
	Dims   []uint64
	Data   []byte
	Offset int64 // −1: where it falls
}

// File is a GGUF file to be.
type File struct {
	Version uint32
	Align   int // of tensor data; a general.alignment key is the caller's business
	KVs     []KV
	Tensors []Tensor
}

// New is a version 3 file of an architecture.
func New(arch string) *File {
	return &File{Version: 3, Align: 32, KVs: []KV{{"general.architecture", arch}}}
}

// Set adds a key, or replaces its value.
func (f *File) Set(key string, v any) *File {
	for i := range f.KVs {
		if f.KVs[i].Key == key {
			f.KVs[i].Value = v
			return f
		}
	}
	f.KVs = append(f.KVs, KV{key, v})
	return f
}

// Delete removes a key.
func (f *File) Delete(key string) *File {
	for i := range f.KVs {
		if f.KVs[i].Key == key {
			f.KVs = append(f.KVs[:i:i], f.KVs[i+1:]...)
			break
		}
	}
	return f
}

// Add adds a tensor of a row-major shape, outermost first.
func (f *File) Add(name, kind string, data []byte, shape ...int) *File {
	n, ok := Types[kind]
	if !ok {
		panic("gguftest: type " + kind)
	}
	dims := make([]uint64, len(shape))
	for i, s := range shape {
		dims[len(shape)-1-i] = uint64(s)
	}
	f.Tensors = append(f.Tensors, Tensor{name, n, dims, data, -1})
	return f
}

// Find returns the tensor of that name for changing.
func (f *File) Find(name string) *Tensor {
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return &f.Tensors[i]
		}
	}
	panic("gguftest: no tensor " + name)
}

// Bytes is the whole file.
func (f *File) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put(&b, f.Version)
	put(&b, uint64(len(f.Tensors)))
	put(&b, uint64(len(f.KVs)))
	for _, kv := range f.KVs {
		str(&b, kv.Key)
		put(&b, kindOf(kv.Value))
		value(&b, kv.Value)
	}
	at := int64(0)
	offsets := make([]int64, len(f.Tensors))
	for i, t := range f.Tensors {
		str(&b, t.Name)
		put(&b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			put(&b, d)
		}
		put(&b, t.Type)
		if offsets[i] = at; t.Offset >= 0 {
			offsets[i] = t.Offset
		}
		put(&b, uint64(offsets[i]))
		at = int64(up(int(offsets[i])+len(t.Data), f.Align))
	}
	if len(f.Tensors) == 0 {
		return b.Bytes()
	}
	start := up(b.Len(), f.Align)
	out := append(b.Bytes(), make([]byte, start-b.Len())...)
	for i, t := range f.Tensors {
		end := start + int(offsets[i]) + len(t.Data)
		if end > len(out) {
			out = append(out, make([]byte, end-len(out))...)
		}
		copy(out[start+int(offsets[i]):], t.Data)
	}
	return out
}

// Write puts the file on disk.
func (f *File) Write(t testing.TB, path string) string {
	t.Helper()
	if err := os.WriteFile(path, f.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func up(n, align int) int { return (n + align - 1) / align * align }

func put(b *bytes.Buffer, v any) { binary.Write(b, binary.LittleEndian, v) }

func str(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

func kindOf(v any) uint32 {
	switch v.(type) {
	case uint8:
		return 0
	case int8:
		return 1
	case uint16:
		return 2
	case int16:
		return 3
	case uint32:
		return 4
	case int32:
		return 5
	case float32:
		return 6
	case bool:
		return 7
	case string:
		return 8
	case uint64:
		return 10
	case int64:
		return 11
	case float64:
		return 12
	}
	return 9
}

func value(b *bytes.Buffer, v any) {
	switch x := v.(type) {
	case string:
		str(b, x)
	case []string:
		list(b, x, 8)
	case []bool:
		list(b, x, 7)
	case []uint8:
		list(b, x, 0)
	case []int8:
		list(b, x, 1)
	case []uint16:
		list(b, x, 2)
	case []int16:
		list(b, x, 3)
	case []uint32:
		list(b, x, 4)
	case []int32:
		list(b, x, 5)
	case []float32:
		list(b, x, 6)
	case []uint64:
		list(b, x, 10)
	case []int64:
		list(b, x, 11)
	case []float64:
		list(b, x, 12)
	case uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64, bool:
		put(b, x)
	default:
		panic(fmt.Sprintf("gguftest: a value of type %T", v))
	}
}

func list[T any](b *bytes.Buffer, s []T, kind uint32) {
	put(b, kind)
	put(b, uint64(len(s)))
	for _, x := range s {
		if t, ok := any(x).(string); ok {
			str(b, t)
		} else {
			put(b, x)
		}
	}
}

// F32 is the bytes of values.
func F32(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// U16 is the bytes of float16 or bfloat16 bit patterns.
func U16(x []uint16) []byte {
	b := make([]byte, 0, 2*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}
