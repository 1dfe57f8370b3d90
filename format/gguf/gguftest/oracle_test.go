package gguftest_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	oracle "github.com/gpustack/gguf-parser-go"

	"neuroprefetcher/format/gguf"
	"neuroprefetcher/format/gguf/gguftest"
)

func sample(version uint32) *gguftest.File {
	f := gguftest.New("llama").Set("general.alignment", uint32(64)).Set("list", []string{"a", "bc"}).Set("numbers", []int32{1, 2, 3}).Set("flag", true)
	f.Version, f.Align = version, 64
	f.Add("a.weight", "F32", make([]byte, 4*6), 2, 3).Add("b.weight", "Q8_0", make([]byte, 34*4), 2, 64).Add("c.weight", "F16", make([]byte, 2*24), 2, 3, 4)
	return f.Add("d.weight", "Q2_K", make([]byte, 84), 256)
}

// The other reader is tested against here, and not in package gguf, because its many dependencies would slow the fuzzing there.

// TestOracle compares structure with gguf-parser-go.
func TestOracle(t *testing.T) {
	paths := []string{"../testdata/small.gguf"}
	for _, v := range []uint32{2, 3} {
		paths = append(paths, sample(v).Write(t, filepath.Join(t.TempDir(), fmt.Sprintf("v%d.gguf", v))))
	}
	for _, path := range paths {
		g, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		o, err := oracle.ParseGGUFFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if int(o.Header.Version) != g.Version || len(o.Header.MetadataKV) != len(g.KV) || len(o.TensorInfos) != len(g.Tensors) {
			t.Fatalf("%s: version %d, %d keys, %d tensors; the other reader has %d, %d, %d", path, g.Version, len(g.KV), len(g.Tensors), o.Header.Version, len(o.Header.MetadataKV), len(o.TensorInfos))
		}
		for _, kv := range o.Header.MetadataKV {
			got := g.KV[kv.Key]
			if kv.ValueType != oracle.GGUFMetadataValueTypeArray {
				if !reflect.DeepEqual(got, kv.Value) {
					t.Errorf("%s: key %s: %v, the other reader has %v", path, kv.Key, got, kv.Value)
				}
				continue
			}
			s := reflect.ValueOf(got)
			for i, w := range kv.ValueArray().Array {
				if !reflect.DeepEqual(s.Index(i).Interface(), w) {
					t.Errorf("%s: key %s[%d]: %v, the other reader has %v", path, kv.Key, i, s.Index(i), w)
				}
			}
		}
		for i, w := range o.TensorInfos {
			x := g.Tensors[i]
			if x.Name != w.Name || x.Type != w.Type.String() || x.Size != int64(w.Bytes()) || x.Offset != o.TensorDataStartOffset+int64(w.Offset) {
				t.Errorf("%s: tensor %+v, the other reader has %+v", path, x, w)
			}
			for k, n := range w.Dimensions {
				if x.Shape[len(x.Shape)-1-k] != int(n) {
					t.Errorf("%s: tensor %s: shape %v, the other reader has dimensions %v", path, x.Name, x.Shape, w.Dimensions)
				}
			}
		}
	}
}
