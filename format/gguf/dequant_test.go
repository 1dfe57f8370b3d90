package gguf

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/x448/float16"

	"neuroprefetcher/format/gguf/gguftest"
)

// readable are the types that ReadF32 decodes; each has reference values in testdata/quant.
var readable = []string{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}

func quantFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "quant", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDequantGolden compares every type with the values of the Python package gguf, bit for bit, through a file and in all row ranges.
func TestDequantGolden(t *testing.T) {
	for _, kind := range readable {
		raw, ref := quantFile(t, kind+".bin"), quantFile(t, kind+".f32")
		want := make([]float32, len(ref)/4)
		for i := range want {
			want[i] = math.Float32frombits(binary.LittleEndian.Uint32(ref[4*i:]))
		}
		per, size, ok := TypeSize(kind)
		if !ok || len(raw)/size*per != len(want) {
			t.Fatalf("%s: %d bytes and %d values do not agree", kind, len(raw), len(want))
		}
		cols := max(per, 32)
		rows := len(want) / cols
		f := gguftest.New("llama").Add("before", "F32", gguftest.F32([]float32{1, 2, 3}), 3).Add("t", kind, raw, rows, cols)
		g, err := Open(f.Write(t, filepath.Join(t.TempDir(), "q.gguf")))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		defer g.Close()
		tensor, ok := g.Find("t")
		if !ok || tensor.Type != kind || !Readable(kind) || tensor.Rows() != rows || tensor.Cols() != cols {
			t.Fatalf("%s: tensor %+v", kind, tensor)
		}
		for lo := range rows {
			for _, hi := range []int{lo, lo + 1, rows} {
				got := make([]float32, (hi-lo)*cols)
				if err := g.ReadF32(tensor, lo, hi, got); err != nil {
					t.Fatalf("%s: rows %d to %d: %v", kind, lo, hi, err)
				}
				for i, v := range got {
					if w := want[lo*cols+i]; math.Float32bits(v) != math.Float32bits(w) && v != w {
						t.Fatalf("%s: rows %d to %d: value %d is %g, want %g", kind, lo, hi, i, v, w)
					}
				}
			}
		}
	}
}

// TestEveryReadableTypeHasGolden keeps the list above complete.
func TestEveryReadableTypeHasGolden(t *testing.T) {
	for _, k := range types {
		if (k.decode != nil) != slices.Contains(readable, k.Name) {
			t.Errorf("type %s: decoder and reference values do not go together", k.Name)
		}
	}
}

// TestHalf compares all float16 bit patterns with another implementation.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		got, want := half([]byte{byte(h), byte(h >> 8)}), float16.Frombits(uint16(h)).Float32()
		if got != want && !(got != got && want != want) || math.Signbit(float64(got)) != math.Signbit(float64(want)) {
			t.Fatalf("%#04x: %g, want %g", h, got, want)
		}
	}
}

// TestReadPieces reads a tensor that is larger than one piece.
func TestReadPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 3000, 256
	raw := make([]byte, rows*cols/32*34)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	for i := 0; i < len(raw); i += 34 { // finite scales
		raw[i+1] = byte(i % 60)
	}
	if len(raw) < 2*pieceBytes {
		t.Fatal("the tensor is too small for the test")
	}
	g, err := Open(gguftest.New("llama").Add("t", "Q8_0", raw, rows, cols).Write(t, filepath.Join(t.TempDir(), "p.gguf")))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	tensor, _ := g.Find("t")
	got := make([]float32, rows*cols)
	if err := g.ReadF32(tensor, 0, rows, got); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		b := raw[i/32*34:]
		if want := half(b) * float32(int8(b[2+i%32])); v != want {
			t.Fatalf("value %d is %g, want %g", i, v, want)
		}
	}
}
