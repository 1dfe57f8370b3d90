package importer

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/gguf/gguftest"
)

// publishedFactors is the table that the converter to GGUF stores, in its float32 arithmetic.
func publishedFactors(theta float64, dim int, factor, low, high, original float64) []float32 {
	var out []float32
	for i := 0; i < dim; i += 2 {
		freq := 1 / float32(math.Pow(theta, float64(float32(i)/float32(dim))))
		wave := 2 * math.Pi / float64(freq)
		switch {
		case wave < original/high:
			out = append(out, 1)
		case wave > original/low:
			out = append(out, float32(factor))
		default:
			smooth := float32((original/wave - low) / (high - low))
			out = append(out, 1/((1-smooth)/float32(factor)+smooth))
		}
	}
	return out
}

// TestLlama3Factors: the frequencies that come out of config.json are those that the factors mean, whatever triple made them.
func TestLlama3Factors(t *testing.T) {
	for _, c := range []struct {
		theta, factor, low, high, original float64
		dim                                int
	}{
		{500000, 8, 1, 4, 8192, 128}, {500000, 32, 1, 4, 8192, 64}, {500000, 8, 1, 4, 32, 16}, {10000, 4, 1, 4, 2048, 64},
		{500000, 8, 1, 3, 5000, 128}, {1e6, 16, 2, 8, 16384, 128}, {500000, 8, 1.5, 6, 12000, 128},
	} {
		p, ok := llama3Scaling(publishedFactors(c.theta, c.dim, c.factor, c.low, c.high, c.original), c.theta)
		if !ok || p == nil {
			t.Errorf("%+v: not recognised", c)
			continue
		}
		got := checkpoint.Config{HeadDim: c.dim, Rope: checkpoint.Rope{Theta: c.theta, Kind: "llama3", Factor: p.factor, LowFreq: p.low, HighFreq: p.high, OriginalMax: p.original}}
		want := checkpoint.Config{HeadDim: c.dim, Rope: checkpoint.Rope{Theta: c.theta, Kind: "llama3", Factor: c.factor, LowFreq: c.low, HighFreq: c.high, OriginalMax: int(c.original)}}
		for i, w := range want.InvFreq() {
			if g := got.InvFreq()[i]; math.Abs(g-w) > 2e-4*w {
				t.Errorf("%+v: frequency %d is %g, want %g (%+v)", c, i, g, w, p)
			}
		}
		if c.low == 1 && c.high == 4 && c.original == 8192 && *p != (llama3{c.factor, 1, 4, 8192}) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
	ones := make([]float32, 32)
	for i := range ones {
		ones[i] = 1
	}
	if p, ok := llama3Scaling(ones, 10000); !ok || p != nil {
		t.Errorf("factors of 1: %+v, %v", p, ok)
	}
	for _, bad := range [][]float32{{1, 2, 1, 8}, {8, 8, 8, 1}, {1, 0.5, 8, 8}, {1, float32(math.NaN()), 8, 8}, {1, 3, 5, 8}} {
		if p, ok := llama3Scaling(bad, 500000); ok {
			t.Errorf("%v: taken for %+v", bad, p)
		}
	}
}

// TestScaling: linear scaling in both spellings, none, and the window keys.
func TestScaling(t *testing.T) {
	for _, c := range []struct {
		name string
		arch string
		set  func(*gguftest.File)
		want func(*checkpoint.Config) bool
	}{
		{"linear", "llama", func(f *gguftest.File) {
			f.Set("llama.rope.scaling.type", "linear").Set("llama.rope.scaling.factor", float32(4))
		}, func(c *checkpoint.Config) bool { return c.Rope.Kind == "linear" && c.Rope.Factor == 4 }},
		{"old linear", "llama", func(f *gguftest.File) { f.Set("llama.rope.scale_linear", float32(2.5)) }, func(c *checkpoint.Config) bool { return c.Rope.Kind == "linear" && c.Rope.Factor == 2.5 }},
		{"none", "qwen2", func(f *gguftest.File) {
			f.Set("qwen2.rope.scaling.type", "none").Set("qwen2.rope.scaling.factor", float32(4))
		}, func(c *checkpoint.Config) bool { return c.Rope.Kind == "" }},
		{"no theta", "llama", func(f *gguftest.File) { f.Delete("llama.rope.freq_base") }, func(c *checkpoint.Config) bool { return c.Rope.Theta == 10000 }},
		{"window", "llama", func(f *gguftest.File) { f.Set("llama.attention.sliding_window", uint32(32)) }, func(c *checkpoint.Config) bool { return c.SlidingWindow == 32 && c.ModelType == "mistral" }},
		{"unused table", "llama", func(f *gguftest.File) {
			f.Add("rope_freqs.weight", "F32", gguftest.F32([]float32{1, 1, 1, 1, 1, 1, 1, 1}), 8)
		}, func(c *checkpoint.Config) bool { return c.Rope.Kind == "" }},
	} {
		f := tiny(c.arch).file()
		c.set(f)
		dir, _ := mustImport(t, f)
		k, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !c.want(k.Config) {
			t.Errorf("%s: %+v", c.name, k.Config)
		}
		k.Close()
	}
	// Numbers that readers expect to be floats are written as floats.
	dir, _ := mustImport(t, tiny("llama").file())
	if b := readJSON(t, filepath.Join(dir, configName)); b["rope_theta"] != 10000.0 {
		t.Errorf("%v", b["rope_theta"])
	}
	if b, _ := decimal(10000).MarshalJSON(); !strings.Contains(string(b), ".") {
		t.Errorf("%s", b)
	}
}
