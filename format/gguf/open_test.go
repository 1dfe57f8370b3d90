package gguf

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf/gguftest"
)

// TestPythonFile reads a file that the reference writer made: every kind of value, and tensors of several types.
func TestPythonFile(t *testing.T) {
	var want struct {
		Keys    map[string]any
		Tensors map[string]struct {
			Type   string
			Shape  []int
			Values []float64
		}
	}
	b, err := os.ReadFile("testdata/small.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	g, err := Open("testdata/small.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Version != 3 || len(g.Tensors) != len(want.Tensors) || len(g.KV) != len(want.Keys) {
		t.Fatalf("version %d, %d tensors, %d keys: %v", g.Version, len(g.Tensors), len(g.KV), g.KV)
	}
	for k, w := range want.Keys {
		got, err := json.Marshal(g.KV[k])
		if err != nil {
			t.Fatal(err)
		}
		wb, _ := json.Marshal(w)
		if !bytes.Equal(got, wb) {
			t.Errorf("key %s: %s, want %s", k, got, wb)
		}
	}
	for name, w := range want.Tensors {
		x, ok := g.Find(name)
		if !ok || x.Type != w.Type || !reflect.DeepEqual(x.Shape, w.Shape) {
			t.Fatalf("tensor %s: %+v, want %+v", name, x, w)
		}
		got := make([]float32, len(w.Values))
		if err := g.ReadF32(x, 0, x.Rows(), got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != float32(w.Values[i]) {
				t.Fatalf("tensor %s: value %d is %g, want %g", name, i, v, w.Values[i])
			}
		}
	}
}

// valid is a file with several keys and tensors, in the given version.
func valid(version uint32) *gguftest.File {
	f := gguftest.New("llama").Set("general.alignment", uint32(64)).Set("list", []string{"a", "bc"}).Set("numbers", []int32{1, 2, 3}).Set("flag", true)
	f.Version, f.Align = version, 64
	f.Add("a.weight", "F32", make([]byte, 4*6), 2, 3).Add("b.weight", "Q8_0", make([]byte, 34*4), 2, 64).Add("c.weight", "F16", make([]byte, 2*24), 2, 3, 4)
	return f.Add("d.weight", "Q2_K", make([]byte, 84), 256)
}

// TestRefused: each fault is one line that names the file and the key or tensor.
func TestRefused(t *testing.T) {
	name := func(s string) func(*gguftest.File) { return func(f *gguftest.File) { f.Tensors[1].Name = s } }
	cases := []struct {
		what   string
		change func(*gguftest.File)
		bytes  func([]byte) []byte
		want   string
	}{
		{"magic", nil, func(b []byte) []byte { b[0] = 'g'; return b }, `not a gguf file: it begins with "gGUF"`},
		{"safetensors", nil, func(b []byte) []byte { return append([]byte{80, 0, 0, 0, 0, 0, 0, 0}, b...) }, "not a gguf file"},
		{"empty", nil, func(b []byte) []byte { return nil }, "too few"},
		{"lfs", nil, func(b []byte) []byte {
			return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 4949453792\n")
		}, "git-lfs pointer"},
		{"version 1", func(f *gguftest.File) { f.Version = 1 }, nil, "version 1 is not supported"},
		{"version 4", func(f *gguftest.File) { f.Version = 4 }, nil, "version 4 is not supported"},
		{"big endian", func(f *gguftest.File) { f.Version = 3 << 24 }, nil, "big-endian"},
		{"tensor count", nil, func(b []byte) []byte { b[15] = 0x7f; return b }, "tensors, limit"},
		{"tensor count beyond the file", nil, func(b []byte) []byte { b[9] = 0xff; return b }, "header: needs"},
		{"key count", nil, func(b []byte) []byte { b[23] = 0xff; return b }, "keys, limit"},
		{"key length", nil, func(b []byte) []byte { b[31] = 0x7f; return b }, `key 0: string of`},
		{"key length beyond the file", nil, func(b []byte) []byte { b[25] = 0xf0; return b }, `key 0: needs`},
		{"key twice", func(f *gguftest.File) { f.KVs = append(f.KVs, gguftest.KV{Key: "flag", Value: false}) }, nil, `key "flag": appears twice`},
		{"key empty", func(f *gguftest.File) { f.KVs = append(f.KVs, gguftest.KV{Key: "", Value: false}) }, nil, `key "": not a valid key`},
		{"value type", nil, func(b []byte) []byte { return replaceAfter(b, "flag", []byte{99, 0, 0, 0}) }, `key "flag": unknown value type 99`},
		{"boolean", nil, func(b []byte) []byte { return replaceAfter(b, "flag", []byte{7, 0, 0, 0, 2}) }, `key "flag": boolean has the value 2`},
		{"array type", nil, func(b []byte) []byte { return replaceAfter(b, "numbers", []byte{9, 0, 0, 0, 77}) }, `key "numbers": array of the unknown value type 77`},
		{"array of arrays", nil, func(b []byte) []byte { return replaceAfter(b, "numbers", []byte{9, 0, 0, 0, 9}) }, `key "numbers": array of arrays`},
		{"array length", nil, func(b []byte) []byte {
			return replaceAfter(b, "numbers", []byte{9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1})
		}, `key "numbers": array of 4294967296 elements`},
		{"array beyond the file", nil, func(b []byte) []byte {
			return replaceAfter(b, "numbers", []byte{9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 32, 0})
		}, `key "numbers": needs`},
		{"alignment 0", func(f *gguftest.File) { f.Set("general.alignment", uint32(0)) }, nil, `key "general.alignment"`},
		{"alignment 48", func(f *gguftest.File) { f.Set("general.alignment", uint32(48)) }, nil, `key "general.alignment"`},
		{"alignment huge", func(f *gguftest.File) { f.Set("general.alignment", uint32(1<<30)) }, nil, `key "general.alignment"`},
		{"alignment kind", func(f *gguftest.File) { f.Set("general.alignment", "32") }, nil, `key "general.alignment"`},
		{"tensor twice", name("a.weight"), nil, `tensor "a.weight": appears twice`},
		{"tensor without a name", name(""), nil, `tensor "": not a valid name`},
		{"tensor with a bad name", name("\xff"), nil, `tensor "\xff": not a valid name`},
		{"tensor with a long name", name(strings.Repeat("x", 2000)), nil, `tensor 1: string of 2000 bytes, limit 1024`},
		{"tensor type", func(f *gguftest.File) { f.Tensors[1].Type = 4 }, nil, `tensor "b.weight": unknown tensor type 4`},
		{"tensor type, large", func(f *gguftest.File) { f.Tensors[1].Type = 1 << 30 }, nil, `tensor "b.weight": unknown tensor type 1073741824`},
		{"no dimensions", func(f *gguftest.File) { f.Tensors[1].Dims = nil }, nil, `tensor "b.weight": 0 dimensions`},
		{"five dimensions", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{64, 1, 1, 1, 1} }, nil, `tensor "b.weight": 5 dimensions`},
		{"empty dimension", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{64, 0} }, nil, `tensor "b.weight": dimension 1 is 0`},
		{"overflow", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{1 << 32, 1 << 32} }, nil, `tensor "b.weight": dimension 1`},
		{"overflow to little", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{1 << 31, 1 << 31, 4} }, nil, `tensor "b.weight": dimension`},
		{"larger than the file", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{64, 1 << 20} }, nil, `tensor "b.weight": `},
		{"row is no block", func(f *gguftest.File) { f.Tensors[1].Dims = []uint64{33, 2} }, nil, `tensor "b.weight": rows of 33 values`},
		{"offset outside", func(f *gguftest.File) { f.Tensors[3].Offset = 1 << 40; f.Tensors[3].Data = nil }, func(b []byte) []byte { return b }, `tensor "d.weight"`},
		{"offset unaligned", func(f *gguftest.File) { f.Tensors[1].Offset = 32 }, nil, `tensor "b.weight": offset 32 is not a multiple`},
		{"overlap", func(f *gguftest.File) { f.Tensors[1].Offset = 0 }, nil, `overlaps tensor`},
		{"truncated", nil, func(b []byte) []byte { return b[:len(b)-1] }, `tensor "d.weight": ends at byte`},
		{"cut in the header", nil, func(b []byte) []byte { return b[:120] }, `needs`},
	}
	for _, c := range cases {
		f := valid(3)
		if c.change != nil {
			c.change(f)
		}
		var b []byte
		if c.what == "offset outside" { // a file of that size is not written
			f.Tensors[3].Offset = -1
			b = f.Bytes()
			i := bytes.Index(b, []byte("d.weight")) + 8 + 4 + 8 + 4
			b[i+5] = 1
		} else {
			b = f.Bytes()
		}
		if c.bytes != nil {
			b = c.bytes(b)
		}
		path := filepath.Join(t.TempDir(), "bad.gguf")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		g, err := Open(path)
		if err == nil {
			g.Close()
			t.Errorf("%s: accepted", c.what)
			continue
		}
		msg := err.Error()
		if !errors.Is(err, format.ErrInput) || !strings.HasPrefix(msg, path+": ") || !strings.Contains(msg, c.want) || strings.Contains(msg, "\n") {
			t.Errorf("%s: %q, want a refusal with %q", c.what, msg, c.want)
		}
	}
}

// replaceAfter overwrites what follows the first occurrence of a key.
func replaceAfter(b []byte, key string, with []byte) []byte {
	i := bytes.Index(b, append([]byte(nil), key...))
	copy(b[i+len(key):], with)
	return b
}

// TestEveryCut: no prefix of a file is taken for the whole, and none makes trouble.
func TestEveryCut(t *testing.T) {
	b := valid(3).Bytes()
	for n := range b {
		if _, err := parse("cut", bytes.NewReader(b[:n]), int64(n)); err == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(b))
		}
	}
	if _, err := parse("whole", bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

func TestNotAFile(t *testing.T) {
	for _, p := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent.gguf")} {
		if _, err := Open(p); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestUnreadableType: a type that is known but not decoded opens, and is refused by name when read.
func TestUnreadableType(t *testing.T) {
	g, err := Open(valid(3).Write(t, filepath.Join(t.TempDir(), "v.gguf")))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	x, _ := g.Find("d.weight")
	err = g.ReadF32(x, 0, 1, make([]float32, 256))
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), `tensor "d.weight": type Q2_K is not supported`) {
		t.Fatal(err)
	}
}

// FuzzOpen: whatever the bytes, the reader refuses or returns a consistent file whose tensors can be read.
func FuzzOpen(f *testing.F) {
	for _, v := range []uint32{2, 3} {
		f.Add(valid(v).Bytes())
	}
	if b, err := os.ReadFile("testdata/small.gguf"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parse("f", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, format.ErrInput) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("refused with %q", err)
			}
			return
		}
		g.r = bytes.NewReader(b)
		for _, x := range g.Tensors {
			if x.Offset < 0 || x.Size <= 0 || x.Offset+x.Size > int64(len(b)) {
				t.Fatalf("tensor %+v lies outside the %d bytes", x, len(b))
			}
			if Readable(x.Type) {
				if err := g.ReadF32(x, 0, 1, make([]float32, x.Cols())); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
