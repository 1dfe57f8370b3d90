package tensors

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"
)

func entries() []Entry {
	big := make([]float32, 40_000) // more than one buffer
	for i := range big {
		big[i] = float32(i) * 0.5
	}
	return []Entry{
		F16Entry("z.half", []int{3}, []uint16{0x3c00, 0x7bff, 0x8001}),
		F32Entry("a.big", []int{200, 200}, big),
		U64Entry("bits", []int{1, 2}, []uint64{1, math.MaxUint64}),
		I32Entry("ids", []int{4}, []int32{-1, 0, math.MaxInt32, math.MinInt32}),
		F32Entry("scalar", nil, []float32{float32(math.Inf(1))}),
		F32Entry("none", []int{0, 7}, nil),
		{"raw", "BF16", []int{2}, func(w io.Writer) error {
			if _, err := w.Write([]byte{1, 2, 3}); err != nil {
				return err
			}
			_, err := w.Write([]byte{4})
			return err
		}},
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	meta := map[string]string{"kind": "test <&>", "é": "\n"}
	if err := Write(path, entries(), meta); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !maps.Equal(f.Metadata(), meta) {
		t.Errorf("metadata %q", f.Metadata())
	}
	if want := []string{"a.big", "bits", "ids", "none", "raw", "scalar", "z.half"}; !reflect.DeepEqual(f.Names(), want) {
		t.Errorf("names %q", f.Names())
	}
	half, err := f.F16("z.half")
	if err != nil || !slices.Equal(half, []uint16{0x3c00, 0x7bff, 0x8001}) {
		t.Errorf("z.half %v, %v", half, err)
	}
	bits, err := f.U64("bits")
	if err != nil || !slices.Equal(bits, []uint64{1, math.MaxUint64}) {
		t.Errorf("bits %v, %v", bits, err)
	}
	ids, err := f.I32("ids")
	if err != nil || !slices.Equal(ids, []int32{-1, 0, math.MaxInt32, math.MinInt32}) {
		t.Errorf("ids %v, %v", ids, err)
	}
	sc, err := f.F32("scalar")
	if err != nil || len(sc) != 1 || !math.IsInf(float64(sc[0]), 1) {
		t.Errorf("scalar %v, %v", sc, err)
	}
	big, err := f.F32("a.big")
	if err != nil || len(big) != 40_000 || big[39_999] != 19999.5 || big[20_001] != 10000.5 {
		t.Errorf("a.big: %d values, %v", len(big), err)
	}
	// Order as given, payload aligned.
	first, _ := f.Info("z.half")
	second, _ := f.Info("a.big")
	if first.Begin%64 != 0 || second.Begin != first.End {
		t.Errorf("z.half at %d to %d, a.big at %d", first.Begin, first.End, second.Begin)
	}

	// An independent reader sees the same.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := safetensors.Deserialize(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range f.Names() {
		v, ok := lib.Tensor(name)
		info, _ := f.Info(name)
		b, err := f.Bytes(name)
		if !ok || err != nil || v.DType().String() != info.DType || !bytes.Equal(v.Data(), b) {
			t.Errorf("%s: the library reads something else", name)
		}
	}
	// Encode streams the same bytes, and a second writing too.
	var buf bytes.Buffer
	if err := Encode(&buf, entries(), meta); err != nil || !bytes.Equal(buf.Bytes(), data) {
		t.Errorf("Encode differs from Write (%v)", err)
	}
}

// TestReadLibraryFiles opens what the library's own writer writes.
func TestReadLibraryFiles(t *testing.T) {
	a, err := safetensors.NewTensorView(safetensors.F16, []uint64{3}, []byte{1, 0, 2, 0, 3, 0})
	if err != nil {
		t.Fatal(err)
	}
	b, err := safetensors.NewTensorView(safetensors.U64, []uint64{1}, []byte{9, 0, 0, 0, 0, 0, 0, 1})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := safetensors.SerializeToWriter(map[string]safetensors.TensorView{"a": a, "b": b}, map[string]string{"format": "pt"}, &buf); err != nil {
		t.Fatal(err)
	}
	f, err := Open(write(t, buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	half, err := f.F16("a")
	if diff := cmp.Diff([]uint16{1, 2, 3}, half); diff != "" || err != nil {
		t.Error(diff, err)
	}
	u, err := f.U64("b")
	if diff := cmp.Diff([]uint64{1<<56 + 9}, u); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestWriteRefusals(t *testing.T) {
	boom := errors.New("no more weights")
	for name, c := range map[string]struct {
		entries []Entry
		want    string
	}{
		"too short": {[]Entry{F32Entry("t", []int{3}, []float32{1, 2})}, "4 bytes fewer"},
		"too long":  {[]Entry{F32Entry("t", []int{1}, []float32{1, 2})}, "4 bytes more"},
		"twice":     {[]Entry{F32Entry("t", []int{1}, []float32{1}), I32Entry("t", []int{1}, []int32{1})}, "twice"},
		"reserved":  {[]Entry{F32Entry("__metadata__", []int{1}, []float32{1})}, "reserved"},
		"dtype":     {[]Entry{{"t", "F9", []int{1}, nil}}, "F9"},
		"negative":  {[]Entry{F32Entry("t", []int{-1}, nil)}, "negative"},
		"overflow":  {[]Entry{F32Entry("t", []int{1 << 40, 1 << 40}, nil)}, "overflows"},
		"producer":  {[]Entry{{"t", "U8", []int{1}, func(io.Writer) error { return boom }}}, "no more weights"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "w.safetensors")
			if err := os.WriteFile(path, []byte("good"), 0o666); err != nil {
				t.Fatal(err)
			}
			err := Write(path, c.entries, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v lacks %q or the path", err, c.want)
			}
			if name == "producer" && !errors.Is(err, boom) {
				t.Errorf("the producer's error is lost: %v", err)
			}
			list, _ := os.ReadDir(dir)
			old, _ := os.ReadFile(path)
			if len(list) != 1 || string(old) != "good" {
				t.Errorf("left behind: %v, the old file holds %q", list, old)
			}
		})
	}
}
