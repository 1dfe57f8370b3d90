package exporter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oracle "github.com/gpustack/gguf-parser-go"
	"github.com/x448/float16"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/gguf"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/repack"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/synthetic"
)

const archs = "../../runtime/model/testdata/arch"

// packed makes a bundle of a checkpoint without calibration.
func packed(t *testing.T, dir string, recordAlign int) (*checkpoint.Checkpoint, *bundle.Bundle) {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &stage.Env{Work: t.TempDir()}
	if _, err := repack.Run(context.Background(), e, repack.Options{Checkpoint: c, RecordAlign: recordAlign}); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.np")
	if _, err := assemble.Run(context.Background(), e, assemble.Options{Checkpoint: c, Out: out, Dense: true, Tool: "test"}); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

func export(t *testing.T, b *bundle.Bundle, path string) Report {
	t.Helper()
	last := int64(0)
	r, err := Export(context.Background(), b, path, Options{Progress: func(done, total int64) {
		if done <= last || done > total {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names maps llama.cpp's names, without "blk.N.", to Hugging Face's, without "model.layers.N.".
var names = map[string]string{
	"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
	"attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight", "attn_v.weight": "self_attn.v_proj.weight",
	"attn_q.bias": "self_attn.q_proj.bias", "attn_k.bias": "self_attn.k_proj.bias", "attn_v.bias": "self_attn.v_proj.bias",
	"attn_output.weight": "self_attn.o_proj.weight", "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
}

func huggingFace(t *testing.T, name string, c *checkpoint.Checkpoint) string {
	var l int
	var rest string
	switch {
	case name == "token_embd.weight":
		return "model.embed_tokens.weight"
	case name == "output_norm.weight":
		return "model.norm.weight"
	case name == "output.weight" && !c.Config.Tied:
		return "lm_head.weight"
	}
	if n, _ := fmt.Sscanf(name, "blk.%d.%s", &l, &rest); n != 2 || names[rest] == "" {
		t.Fatalf("tensor %q is none of the model's", name)
	}
	return fmt.Sprintf("model.layers.%d.%s", l, names[rest])
}

// values are the checkpoint's as numbers.
func values(t *testing.T, c *checkpoint.Checkpoint, name string) (v []float32, shape []int) {
	t.Helper()
	info, data, err := c.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	switch info.DType {
	case "F32":
		for ; len(data) > 0; data = data[4:] {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
	case "BF16":
		for ; len(data) > 0; data = data[2:] {
			v = append(v, math.Float32frombits(uint32(binary.LittleEndian.Uint16(data))<<16))
		}
	case "F16":
		for ; len(data) > 0; data = data[2:] {
			v = append(v, float16.Frombits(binary.LittleEndian.Uint16(data)).Float32())
		}
	default:
		t.Fatal(info.DType)
	}
	return v, info.Shape
}

// interleave is the converter's reshape(heads, 2, d/2, cols).swapaxes(1, 2): element (h, j, i) goes to (h, i, j).
func interleave(v []float32, heads, rows int) []float32 {
	cols, d := len(v)/rows, rows/heads
	var out []float32
	for h := range heads {
		for i := range d / 2 {
			for j := range 2 {
				r := h*d + j*(d/2) + i
				out = append(out, v[r*cols:(r+1)*cols]...)
			}
		}
	}
	return out
}

// TestWeights holds every tensor of the file, as another reader finds it, against the checkpoint behind the bundle, bit for bit.
func TestWeights(t *testing.T) {
	defer func(n int) { downBytes = n }(downBytes)
	dirs, err := filepath.Glob(archs + "/*")
	if err != nil || len(dirs) < 7 {
		t.Fatal(dirs, err)
	}
	for i, dir := range append(dirs, "../../pipelines/tiny/checkpoint") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			align := []int{0, 4096}[i%2]
			downBytes = []int{64 << 20, 4000, 1}[i%3] // one block, some, one for every row
			c, b := packed(t, dir, align)
			path := filepath.Join(t.TempDir(), "m.gguf")
			r := export(t, b, path)
			o, err := oracle.ParseGGUFFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(o.TensorInfos) != r.Tensors || !r.Written || o.Header.Version != 3 {
				t.Errorf("%d tensors, version %d; %+v", len(o.TensorInfos), o.Header.Version, r)
			}
			g, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(data)) != r.Bytes {
				t.Errorf("%d bytes, reported %d", len(data), r.Bytes)
			}
			seen := 0
			for k, x := range o.TensorInfos {
				if own := g.Tensors[k]; own.Name != x.Name || own.Type != x.Type.String() || own.Offset != o.TensorDataStartOffset+int64(x.Offset) || own.Size != int64(x.Bytes()) {
					t.Fatalf("%+v, the other reader has %+v", own, x)
				}
				got := data[o.TensorDataStartOffset+int64(x.Offset):][:x.Bytes()]
				if x.Name == "rope_freqs.weight" {
					checkFactors(t, c.Config, got)
					continue
				}
				seen++
				v, shape := values(t, c, huggingFace(t, x.Name, c))
				for n, d := range x.Dimensions {
					if shape[len(shape)-1-n] != int(d) {
						t.Fatalf("%s: dimensions %v, want the reverse of %v", x.Name, x.Dimensions, shape)
					}
				}
				if b.Manifest.Model.ModelType != "qwen2" && strings.Contains(x.Name, "attn_q.") {
					v = interleave(v, c.Config.Heads, shape[0])
				} else if b.Manifest.Model.ModelType != "qwen2" && strings.Contains(x.Name, "attn_k.") {
					v = interleave(v, c.Config.KVHeads, shape[0])
				}
				var want []byte
				for _, f := range v {
					if len(shape) == 1 {
						want = binary.LittleEndian.AppendUint32(want, math.Float32bits(f))
					} else {
						want = binary.LittleEndian.AppendUint16(want, float16.Fromfloat32(f).Bits())
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s differs from %s", x.Name, huggingFace(t, x.Name, c))
				}
			}
			per := 9
			if c.Config.QKVBias {
				per = 12
			}
			if all := per*c.Config.Layers + 2 + map[bool]int{false: 1}[c.Config.Tied]; seen != all {
				t.Errorf("%d tensors, the model has %d", seen, all)
			}
			checkKeys(t, c.Config, g)
		})
	}
}

// checkFactors: the frequencies divided by the file's factors are the configuration's.
func checkFactors(t *testing.T, c *checkpoint.Config, got []byte) {
	t.Helper()
	want := c.InvFreq()
	if len(got) != 4*len(want) {
		t.Fatalf("%d bytes of factors for %d frequencies", len(got), len(want))
	}
	scaled := 0
	for i, w := range want {
		f := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])))
		if v := math.Pow(c.Rope.Theta, -float64(i)/float64(len(want))) / f; math.Abs(v-w) > 1e-6*w {
			t.Errorf("frequency %d is %v, want %v", i, v, w)
		}
		if f > 1.01 {
			scaled++
		}
	}
	if scaled == 0 {
		t.Error("nothing is scaled")
	}
}

func checkKeys(t *testing.T, c *checkpoint.Config, g *gguf.File) {
	t.Helper()
	arch := map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2"}[c.ModelType]
	want := map[string]any{"general.architecture": arch, "tokenizer.ggml.model": "no_vocab"}
	for k, v := range map[string]int{"block_count": c.Layers, "context_length": c.MaxPositions, "embedding_length": c.Hidden, "feed_forward_length": c.Intermediate,
		"attention.head_count": c.Heads, "attention.head_count_kv": c.KVHeads, "attention.key_length": c.HeadDim, "rope.dimension_count": c.HeadDim, "vocab_size": c.Vocab} {
		want[arch+"."+k] = uint32(v)
	}
	want[arch+".attention.layer_norm_rms_epsilon"], want[arch+".rope.freq_base"] = float32(c.RMSEps), float32(c.Rope.Theta)
	if c.SlidingWindow > 0 {
		want[arch+".attention.sliding_window"] = uint32(c.SlidingWindow)
	}
	for k, v := range want {
		if g.KV[k] != v {
			t.Errorf("key %s is %v, want %v", k, g.KV[k], v)
		}
	}
	if _, ok := g.Find("rope_freqs.weight"); ok != (c.Rope.Kind == "llama3") {
		t.Errorf("factors there: %v, the configuration says %+v", ok, c.Rope)
	}
}

// TestUpToDate: a whole file of the same weights is left alone, anything else is replaced.
func TestUpToDate(t *testing.T) {
	_, b := packed(t, archs+"/smollm2", 0)
	_, other := packed(t, archs+"/llama2", 0)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if r := export(t, b, path); !r.Written {
		t.Error(r)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r := export(t, b, path); r.Written || r.Bytes != int64(len(good)) || r.Tensors == 0 {
		t.Error(r)
	}
	for name, bad := range map[string][]byte{"cut short": good[:len(good)-1], "no gguf": []byte("mine")} {
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if r := export(t, b, path); !r.Written {
			t.Errorf("%s: taken for the same weights", name)
		}
		if again, err := os.ReadFile(path); err != nil || !slices.Equal(again, good) {
			t.Errorf("%s: other bytes the second time (%v)", name, err)
		}
	}
	if r := export(t, other, path); !r.Written {
		t.Error("another bundle's file was taken for this one's")
	}
}

// TestDamage: a record that is not what was written is named, and no file appears.
func TestDamage(t *testing.T) {
	for _, align := range []int{0, 4096} {
		_, b := packed(t, archs+"/smollm2", align)
		f, err := os.OpenFile(b.Path(bundle.MemberRows), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := b.Manifest.Rows.RecordOffset(1, 7) + 5
		if _, err := f.WriteAt([]byte{0xee}, at); err != nil {
			t.Fatal(err)
		}
		f.Close()
		dir := t.TempDir()
		_, err = Export(context.Background(), b, filepath.Join(dir, "m.gguf"), Options{})
		if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "layer 1, neuron 7") {
			t.Error(err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("left %v (%v)", list, err)
		}
	}
}

// TestCancelled: an interrupted export leaves what was there.
func TestCancelled(t *testing.T) {
	shape, err := synthetic.ShapeOf("tiny")
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := synthetic.Ensure(context.Background(), t.TempDir(), shape, 1, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err = Export(ctx, b, path, Options{Progress: func(int64, int64) {
		if calls++; calls == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || calls != 5 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
	if r := export(t, b, path); !r.Written {
		t.Error(r)
	}
}

// TestOutsideBundles holds that an export leaves bundles alone, its own and others.
func TestOutsideBundles(t *testing.T) {
	_, b := packed(t, archs+"/smollm2", 0)
	_, other := packed(t, archs+"/llama2", 0)
	for _, path := range []string{filepath.Join(b.Dir, bundle.MemberRows), filepath.Join(other.Dir, bundle.MemberRows), filepath.Join(b.Dir, "new.gguf")} {
		before, _ := os.ReadFile(path)
		_, err := Export(context.Background(), b, path, Options{})
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "lies in a bundle") {
			t.Errorf("%s: %v", path, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}
