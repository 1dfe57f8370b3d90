package gguf

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf/gguftest"
)

func writing(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

// TestWrite: the bytes are those of the tests' own writer, which shares no code, and the reader takes them.
func TestWrite(t *testing.T) {
	f32, f16, q8 := bytes.Repeat([]byte{1, 2, 3, 4}, 6), bytes.Repeat([]byte{5, 6}, 5), bytes.Repeat([]byte{7}, 34*4)
	keys := []Pair{{"general.architecture", "llama"}, {"u32", uint32(7)}, {"i32", int32(-7)}, {"u64", uint64(1) << 40}, {"f32", float32(1.5)}, {"flag", true},
		{"names", []string{"a", "", "häß"}}, {"ints", []int32{1, -2}}, {"floats", []float32{0.5}}}
	want := &gguftest.File{Version: 3, Align: 32}
	for _, k := range keys {
		want.Set(k.Key, k.Value)
	}
	want.Add("a", "F32", f32, 2, 3).Add("b", "F16", f16, 5).Add("c", "Q8_0", q8, 2, 64)
	path := filepath.Join(t.TempDir(), "m.gguf")
	err := Write(path, keys, []Entry{{"a", "F32", []int{2, 3}, writing(f32)}, {"b", "F16", []int{5}, writing(f16)}, {"c", "Q8_0", []int{2, 64}, writing(q8)}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The end of the last tensor is padded here, as llama.cpp's own writer does.
	if w := want.Bytes(); !bytes.HasPrefix(got, w) || len(got)-len(w) != (32-len(q8)%32)%32 || len(bytes.Trim(got[len(w):], "\x00")) > 0 {
		t.Fatalf("%d bytes that differ from the %d wanted", len(got), len(w))
	}
	g, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, k := range keys {
		if !reflect.DeepEqual(g.KV[k.Key], k.Value) {
			t.Errorf("key %s is %v, want %v", k.Key, g.KV[k.Key], k.Value)
		}
	}
	for name, w := range map[string][]byte{"a": f32, "b": f16, "c": q8} {
		if x, ok := g.Find(name); !ok || !bytes.Equal(got[x.Offset:x.Offset+x.Size], w) {
			t.Errorf("tensor %s differs", name)
		}
	}
}

// TestWriteRefused: what could not be read back is not written, and a writer that fails leaves nothing.
func TestWriteRefused(t *testing.T) {
	ok := Entry{"a", "F32", []int{2}, writing(make([]byte, 8))}
	with := func(f func(*Entry)) []Entry {
		e := ok
		f(&e)
		return []Entry{e}
	}
	failure := errors.New("the source is gone")
	for want, c := range map[string]struct {
		keys    []Pair
		entries []Entry
	}{
		`key "k"`:                      {[]Pair{{"k", uint32(1)}, {"k", uint32(2)}}, nil},
		`key "general.alignment"`:      {[]Pair{{"general.alignment", uint32(64)}}, nil},
		"type complex128":              {[]Pair{{"k", 1i}}, nil},
		"used twice":                   {nil, []Entry{ok, ok}},
		"longer than 63":               {nil, with(func(e *Entry) { e.Name = strings.Repeat("x", 64) })},
		`type "F17"`:                   {nil, with(func(e *Entry) { e.Type = "F17" })},
		"0 dimensions":                 {nil, with(func(e *Entry) { e.Shape = nil })},
		"shape [0]":                    {nil, with(func(e *Entry) { e.Shape = []int{0} })},
		"shape [4611686018427387904 4": {nil, with(func(e *Entry) { e.Shape = []int{1 << 62, 4} })},
		"do not divide":                {nil, with(func(e *Entry) { e.Type, e.Shape = "Q8_0", []int{33} })},
		"bytes fewer":                  {nil, with(func(e *Entry) { e.Write = writing(make([]byte, 7)) })},
		"bytes more":                   {nil, with(func(e *Entry) { e.Write = writing(make([]byte, 9)) })},
		"the source is gone":           {nil, with(func(e *Entry) { e.Write = func(io.Writer) error { return failure } })},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.gguf")
		err := Write(path, c.keys, c.entries)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%v, want %s", err, want)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("%s: left %v (%v)", want, list, err)
		}
	}
	if err := Write(filepath.Join(t.TempDir(), "no", "m.gguf"), nil, nil); !errors.Is(err, format.ErrInput) {
		t.Error(err)
	}
}
