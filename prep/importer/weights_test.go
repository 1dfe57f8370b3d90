package importer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/x448/float16"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/gguf/gguftest"
	"neuroprefetcher/format/tensors"
)

// sameWeights compares every tensor of an imported directory with the model it was made from.
func sameWeights(t *testing.T, m *model, dir string) {
	t.Helper()
	f, err := tensors.Open(filepath.Join(dir, weightsName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Names()) != len(m.order) {
		t.Fatalf("%d tensors, want %d", len(f.Names()), len(m.order))
	}
	for _, name := range m.order {
		info, ok := f.Info(name)
		if !ok || !reflect.DeepEqual(info.Shape, m.shapes[name]) {
			t.Fatalf("%s: %+v, want shape %v", name, info, m.shapes[name])
		}
		if len(info.Shape) == 1 {
			got, err := f.F32(name)
			if err != nil || !reflect.DeepEqual(got, m.weights[name]) {
				t.Fatalf("%s differs (%v)", name, err)
			}
			continue
		}
		got, err := f.F16(name)
		if err != nil || !reflect.DeepEqual(got, halves(m.weights[name])) {
			t.Fatalf("%s differs (%v)", name, err)
		}
	}
}

// TestWeights: both architectures, heads of another size than hidden/heads, one KV head, tied and not; the permutation is undone for llama only.
func TestWeights(t *testing.T) {
	for _, m := range []*model{
		tiny("llama"), tiny("qwen2"), newModel("llama", 64, 96, 4, 1, 16, 300, true), newModel("llama", 64, 96, 4, 2, 24, 300, false), newModel("llama", 64, 160, 2, 2, 2, 300, false),
	} {
		dir, r := mustImport(t, m.file())
		sameWeights(t, m, dir)
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g := c.Config
		if g.Layers != m.layers || g.Hidden != m.hidden || g.Intermediate != m.inter || g.Heads != m.heads || g.KVHeads != m.kv || g.HeadDim != m.dim || g.Vocab != m.voc ||
			g.MaxPositions != 256 || g.RMSEps != 1e-5 || g.Rope.Theta != 10000 || g.Rope.Kind != "" || g.Tied != m.tied || g.QKVBias != (m.arch == "qwen2") || g.BOS != 1 {
			t.Errorf("%s: config %+v", m.arch, g)
		}
		if !reflect.DeepEqual(g.EOS, []int{0, 2}) { // the header's end token, and <|endoftext|>
			t.Errorf("end tokens %v", g.EOS)
		}
		if tmpl, err := c.ChatTemplate(); err != nil || !strings.Contains(tmpl, "m.content") {
			t.Errorf("chat template %q, %v", tmpl, err)
		}
		if len(c.Warnings) != 0 {
			t.Errorf("warnings %q", c.Warnings)
		}
		var values, written int64
		for _, name := range m.order {
			n := int64(len(m.weights[name]))
			if len(m.shapes[name]) == 2 {
				values, written = values+n, written+2*n
			} else {
				written += 4 * n
			}
		}
		if r.Values != values || r.BytesWritten != written || r.Rounded != 0 || r.Underflow != 0 || r.Tensors != len(m.order) || r.Architecture != m.arch ||
			r.Vocab != 3+256+4 || r.Merges != 4 || r.Tokenizer != "gpt2/smollm" || !r.ChatTemplate || r.Types["F16"]+r.Types["F32"] != len(m.order) {
			t.Errorf("%s: report %+v", m.arch, r)
		}
	}
}

// TestArchFixtures turns the checkpoints that the model is tested with into GGUF files, as the converter does, and expects the import to give them back.
func TestArchFixtures(t *testing.T) {
	for _, name := range []string{"llama2", "llama3", "llama3-new-keys", "mistral", "qwen2", "smollm2"} {
		src, err := checkpoint.Open(filepath.Join("..", "..", "runtime", "model", "testdata", "arch", name))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		c := src.Config
		m := &model{arch: "llama", layers: c.Layers, hidden: c.Hidden, inter: c.Intermediate, heads: c.Heads, kv: c.KVHeads, dim: c.HeadDim, voc: c.Vocab}
		if c.ModelType == "qwen2" {
			m.arch = "qwen2"
		}
		f := gguftest.New(m.arch)
		m.keys(f)
		f.Set(m.arch+".rope.freq_base", float32(c.Rope.Theta))
		byteLevelKeys(f, "smollm", c.Vocab)
		if c.Rope.Kind == "llama3" {
			f.Add("rope_freqs.weight", "F32", gguftest.F32(publishedFactors(c.Rope.Theta, c.HeadDim, c.Rope.Factor, c.Rope.LowFreq, c.Rope.HighFreq, float64(c.Rope.OriginalMax))), c.HeadDim/2)
		}
		want := map[string][]byte{} // float16 matrices, float32 vectors
		for _, hf := range fixtureNames(c) {
			info, raw, err := src.Tensor(hf)
			if err != nil {
				t.Fatal(err)
			}
			size := len(raw)
			for _, n := range info.Shape {
				size /= n
			}
			vals := widen(t, info.DType, raw)
			if len(info.Shape) == 1 {
				want[hf] = gguftest.F32(vals)
				f.Add(ggufName(hf), "F32", gguftest.F32(vals), info.Shape...)
				continue
			}
			want[hf] = gguftest.U16(halves(vals))
			data := raw
			if h := m.headsOf(hf); h > 0 {
				data = permute(raw, h, info.Shape[0], info.Shape[1]*size)
			}
			f.Add(ggufName(hf), info.DType, data, info.Shape...)
		}
		dir, _ := mustImport(t, f)
		got, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		for hf, w := range want {
			if _, raw, err := got.Tensor(hf); err != nil || !bytes.Equal(raw, w) {
				t.Errorf("%s: %s differs (%v)", name, hf, err)
			}
		}
		if got.Config.Tied != c.Tied || got.Config.QKVBias != c.QKVBias || got.Config.RMSEps != c.RMSEps || got.Config.KVHeads != c.KVHeads {
			t.Errorf("%s: config %+v, want %+v", name, got.Config, c)
		}
		for i, w := range c.InvFreq() {
			if g := got.Config.InvFreq()[i]; math.Abs(g-w) > 1e-6*w {
				t.Errorf("%s: frequency %d is %g, want %g (%+v)", name, i, g, w, got.Config.Rope)
			}
		}
	}
}

func fixtureNames(c *checkpoint.Config) []string {
	m := newModel(map[bool]string{true: "qwen2", false: "llama"}[c.ModelType == "qwen2"], 8, 8, 2, 2, 4, 8, c.Tied)
	var names []string
	for _, n := range m.order {
		if !strings.HasPrefix(n, "model.layers.") {
			names = append(names, n)
		} else if rest, ok := strings.CutPrefix(n, "model.layers.0."); ok {
			for l := range c.Layers {
				names = append(names, fmt.Sprintf("model.layers.%d.%s", l, rest))
			}
		}
	}
	return names
}

func widen(t *testing.T, dtype string, raw []byte) []float32 {
	t.Helper()
	var out []float32
	switch dtype {
	case "F32":
		for i := 0; i < len(raw); i += 4 {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		}
	case "F16":
		for i := 0; i < len(raw); i += 2 {
			out = append(out, float16.Frombits(binary.LittleEndian.Uint16(raw[i:])).Float32())
		}
	case "BF16":
		for i := 0; i < len(raw); i += 2 {
			out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[i:]))<<16))
		}
	default:
		t.Fatalf("dtype %s", dtype)
	}
	return out
}

// TestEveryType imports models whose matrices are of each type, made of the reference package's blocks, and compares with its values rounded to float16.
func TestEveryType(t *testing.T) {
	for _, kind := range []string{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"} {
		read := func(ext string) []byte {
			b, err := os.ReadFile(filepath.Join("..", "..", "format", "gguf", "testdata", "quant", kind+ext))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		raw, vals := read(".bin"), widen(t, "F32", read(".f32"))
		m := newModel("llama", 256, 512, 4, 2, 64, 300, false)
		f := m.file()
		rowBytes := len(raw) / (len(vals) / 256)
		for i := range f.Tensors {
			x := &f.Tensors[i]
			if len(x.Dims) != 2 {
				continue
			}
			rows, per := int(x.Dims[1]), int(x.Dims[0]/256) // per: 256-value pieces in a row
			x.Type, x.Data = gguftest.Types[kind], nil
			for p := range rows * per {
				k := (p + i) % (len(vals) / 256)
				x.Data = append(x.Data, raw[k*rowBytes:(k+1)*rowBytes]...)
			}
		}
		dir, r := mustImport(t, f)
		got, err := tensors.Open(filepath.Join(dir, weightsName))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		var rounded, under int64
		for i, x := range f.Tensors {
			name := m.order[i]
			if len(x.Dims) != 2 {
				continue
			}
			rows, per := int(x.Dims[1]), int(x.Dims[0]/256)
			want := make([]float32, 0, rows*per*256)
			for p := range rows * per {
				k := (p + i) % (len(vals) / 256)
				want = append(want, vals[k*256:(k+1)*256]...)
			}
			for _, v := range want {
				h := float16.Fromfloat32(v)
				if h.Float32() != v {
					rounded++
				}
				if v != 0 && h.Float32() == 0 {
					under++
				}
			}
			if h := m.headsOf(name); h > 0 { // undo the permutation, by its definition
				back := make([]float32, len(want))
				d, cols := rows/h, per*256
				for head := range h {
					for i := range d / 2 {
						for j := range 2 {
							copy(back[(head*d+j*(d/2)+i)*cols:][:cols], want[(head*d+i*2+j)*cols:])
						}
					}
				}
				want = back
			}
			bits, err := got.F16(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range want {
				if w := float16.Fromfloat32(v); bits[i] != w.Bits() && !(v == 0 && bits[i]&0x7fff == 0) {
					t.Fatalf("%s: %s: value %d is %#04x, want %#04x (%g)", kind, name, i, bits[i], w.Bits(), v)
				}
			}
		}
		if r.Types[kind] == 0 || r.Rounded != rounded || r.Underflow != under {
			t.Errorf("%s: report %+v, want %d rounded, %d to zero", kind, r, rounded, under)
		}
	}
}

// TestHalfBorders pins how values at the edges of float16 are taken.
func TestHalfBorders(t *testing.T) {
	f := tiny("llama").file()
	x := f.Find("blk.1.ffn_up.weight")
	vals := make([]float32, 96*64)
	copy(vals, []float32{65504, -65504, 0x1p-24, 0x1p-25, -0x1p-25, 0x1.01p-25, 65519.99})
	x.Type, x.Data = gguftest.Types["F32"], gguftest.F32(vals)
	dir, r := mustImport(t, f)
	got, err := tensors.Open(filepath.Join(dir, weightsName))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	bits, err := got.F16("model.layers.1.mlp.up_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint16{0x7bff, 0xfbff, 1, 0, 0x8000, 1, 0x7bff}; !reflect.DeepEqual(bits[:7], want) {
		t.Errorf("%#04x, want %#04x", bits[:7], want)
	}
	if r.Rounded != 4 || r.Underflow != 2 {
		t.Errorf("report %+v: want 4 rounded and 2 to zero", r)
	}
}
