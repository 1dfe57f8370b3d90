package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
)

var pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 4949453792\n"

const (
	shard1 = "model-00001-of-00002.safetensors"
	shard2 = "model-00002-of-00002.safetensors"
	index  = "model.safetensors.index.json"
)

func two(m *ct.Model) { m.Shards = 2 }

// edit changes one tensor.
func edit(name string, f func(t *ct.Tensor)) func(*ct.Model) {
	return func(m *ct.Model) {
		m.Edit = func(ts []ct.Tensor) []ct.Tensor { f(ct.Find(ts, name)); return ts }
	}
}

// extra adds a tensor.
func extra(name, dtype string, shape []int, size int) func(*ct.Model) {
	return func(m *ct.Model) {
		m.Edit = func(ts []ct.Tensor) []ct.Tensor {
			return append(ts, ct.Tensor{Name: name, DType: dtype, Shape: shape, Data: make([]byte, size)})
		}
	}
}

func without(name string) func(*ct.Model) {
	return func(m *ct.Model) { m.Edit = func(ts []ct.Tensor) []ct.Tensor { return ct.Without(ts, name) } }
}

func file(name, text string) func(*ct.Model) {
	return func(m *ct.Model) {
		if m.Files == nil {
			m.Files = map[string]string{}
		}
		m.Files[name] = text
	}
}

func set(key string, val any) func(*ct.Model) { return func(m *ct.Model) { m.Config[key] = val } }

func remap(name, shard string) func(*ct.Model) {
	return func(m *ct.Model) {
		m.Index = func(w map[string]string) {
			if shard == "" {
				delete(w, name)
			} else {
				w[name] = shard
			}
		}
	}
}

// remove deletes files after they were written.
type remove []string

type edits []func(*ct.Model)

// stray is a complete safetensors file with tensors of other names.
var stray = string(ct.Encode([]ct.Tensor{{Name: "layers.0.attention.wq.weight", DType: "BF16", Shape: []int{64, 64}, Data: make([]byte, 8192)}}))

const up0 = "model.layers.0.mlp.up_proj.weight"

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		edits  edits
		remove remove
		want   []string
	}{
		// A git-lfs pointer where a file should be.
		{"lfs shard", edits{two, file(shard2, pointer)}, nil, []string{shard2, "git-lfs pointer", "not downloaded", "size 4949453792"}},
		{"lfs tokenizer", edits{file("tokenizer.json", pointer)}, nil, []string{"tokenizer.json", "git-lfs pointer", "size 4949453792"}},
		{"lfs config", edits{file("config.json", pointer)}, nil, []string{"config.json", "git-lfs pointer"}},
		{"lfs index", edits{two, file(index, pointer)}, nil, []string{index, "git-lfs pointer"}},
		{"lfs template", edits{file("chat_template.jinja", pointer)}, nil, []string{"chat_template.jinja", "git-lfs pointer"}},

		// Files that lie: one of each kind arrives here too; the tensors package has them all.
		{"cut file", edits{func(m *ct.Model) {
			data := ct.Encode(m.Weights())
			file("model.safetensors", string(data[:len(data)-1]))(m)
		}}, nil, []string{"model.safetensors", `tensor "lm_head.weight"`, "cut short"}},

		// Which files belong to the model.
		{"shard absent", edits{two}, remove{shard2}, []string{index, "1 of 2 shards", "absent", shard2}},
		{"both shards absent", edits{two}, remove{shard1, shard2}, []string{"2 of 2 shards", shard1, shard2}},
		{"tensor in another shard", edits{two, remap("model.norm.weight", shard1)}, nil,
			[]string{index, `"model.norm.weight"`, "mapped to " + shard1, "not in that file's header", "it is in " + shard2}},
		{"tensor in no shard", edits{two, without("model.norm.weight"), remap("model.norm.weight", shard1)}, nil,
			[]string{index, `"model.norm.weight"`, "mapped to " + shard1, "no listed shard"}},
		{"tensor not in the index", edits{two, remap("model.norm.weight", "")}, nil, []string{index, `"model.norm.weight"`, "not in the index", shard2}},
		{"tensor nowhere", edits{two, without("model.norm.weight")}, nil, []string{index, `"model.norm.weight"`, "not in the index at all"}},
		{"head not in the index, tied not given", edits{two, set("tie_word_embeddings", ct.Absent), remap("lm_head.weight", "")}, nil,
			[]string{index, `"lm_head.weight"`, "not in the index"}},
		{"tensor in two shards", edits{two, func(m *ct.Model) {
			m.Edit = func(ts []ct.Tensor) []ct.Tensor { return append([]ct.Tensor{*ct.Find(ts, "model.norm.weight")}, ts...) }
		}}, nil, []string{`"model.norm.weight"`, "more than one shard", shard1, shard2}},
		{"empty index", edits{two, file(index, `{"weight_map":{}}`)}, nil, []string{index, "weight_map is empty"}},
		{"index without map", edits{two, file(index, `{"metadata":{}}`)}, nil, []string{index, "weight_map is missing"}},
		{"index is no map", edits{two, file(index, `{"weight_map":[1]}`)}, nil, []string{index, "weight_map is not an object"}},
		{"index names a tensor twice", edits{two, file(index, `{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`)}, nil, []string{index, `duplicate key "a"`}},
		{"index points elsewhere", edits{two, file(index, `{"weight_map":{"a":"../x.safetensors"}}`)}, nil, []string{index, `"../x.safetensors"`}},
		{"index of bin files", edits{two, file(index, `{"weight_map":{"a":"pytorch_model.bin"}}`)}, nil, []string{index, `"pytorch_model.bin"`}},
		{"shards without index", edits{two}, remove{index}, []string{"no " + index, shard1, shard2}},
		{"two candidates", edits{file("a.safetensors", stray), file("consolidated.safetensors", stray)}, remove{"model.safetensors"},
			[]string{"2 files could be the model", "a.safetensors", "consolidated.safetensors"}},
		{"one shard of two", edits{two}, remove{index, shard1}, []string{shard2, index + " is missing"}},
		{"only an adapter", edits{file("adapter_model.safetensors", stray)}, remove{"model.safetensors"}, []string{"adapter"}},
		{"no weights", nil, remove{"model.safetensors"}, []string{"no safetensors file"}},
		{"tensor missing", edits{without("model.layers.1.mlp.gate_proj.weight")}, nil, []string{"model.safetensors", `"model.layers.1.mlp.gate_proj.weight"`, "missing"}},
		{"other names only", edits{file("model.safetensors", stray), set("tie_word_embeddings", ct.Absent)}, nil, []string{"model.safetensors", `"model.embed_tokens.weight"`, "missing"}},

		// Quantised checkpoints.
		{"fp8 with its scale", edits{func(m *ct.Model) {
			m.Edit = func(ts []ct.Tensor) []ct.Tensor {
				u := ct.Find(ts, up0)
				u.DType, u.Data = "F8_E4M3", make([]byte, 6144)
				return append(ts, ct.NewTensor(up0+"_scale_inv", "F32", []int{1, 1}, []float32{1}))
			}
		}}, nil, []string{"model.safetensors", up0, `"F8_E4M3"`}},
		{"quantization_config", edits{set("quantization_config", map[string]any{"quant_method": "compressed-tensors", "format": "float-quantized"})}, nil,
			[]string{"config.json", "quantization_config", "compressed-tensors"}},
		{"empty quantization_config", edits{set("quantization_config", map[string]any{})}, nil, []string{"config.json", "quantization_config"}},
		{"dtype F9", edits{edit(up0, func(t *ct.Tensor) { t.DType = "F9" })}, nil, []string{"model.safetensors", up0, `"F9"`}},
		{"integers", edits{edit(up0, func(t *ct.Tensor) { t.DType = "I16" })}, nil, []string{"model.safetensors", up0, `"I16"`}},
		{"doubles", edits{edit("model.norm.weight", func(t *ct.Tensor) { t.DType, t.Data = "F64", make([]byte, 512) })}, nil, []string{`"model.norm.weight"`, `"F64"`}},
		{"scale beside plain weights", edits{extra(up0+"_scale", "F32", []int{1}, 4)}, nil, []string{"model.safetensors", up0 + "_scale", "quantised"}},
		{"inverse scale", edits{extra(up0+"_scale_inv", "F32", []int{1, 1}, 4)}, nil, []string{"model.safetensors", up0 + "_scale_inv", "quantised"}},
		{"input scale", edits{extra("model.layers.0.mlp.up_proj.input_scale", "BF16", nil, 2)}, nil, []string{"input_scale", "quantised"}},

		// Shapes against config.json.
		{"head_dim against q_proj", edits{set("head_dim", 24)}, nil, []string{"model.safetensors", `"model.layers.0.self_attn.q_proj.weight"`, "[64 64]", "[96 64]", "head_dim 24"}},
		{"kv heads against k_proj", edits{set("num_key_value_heads", nil)}, nil, []string{`"model.layers.0.self_attn.k_proj.weight"`, "num_key_value_heads 4"}},
		{"vocab_size against embedding", edits{set("vocab_size", 384)}, nil, []string{`"model.embed_tokens.weight"`, "[320 64]", "vocab_size 384"}},
		{"intermediate_size", edits{set("intermediate_size", 100)}, nil, []string{"mlp.gate_proj.weight", "[96 64]", "intermediate_size 100"}},
		{"more layers than tensors", edits{set("num_hidden_layers", 4)}, nil, []string{`"model.layers.3.input_layernorm.weight"`, "missing"}},
		{"down_proj transposed", edits{edit("model.layers.2.mlp.down_proj.weight", func(t *ct.Tensor) { t.Shape = []int{96, 64} })}, nil,
			[]string{`"model.layers.2.mlp.down_proj.weight"`, "[96 64]", "[64 96]"}},
		{"qwen2 without biases", edits{set("model_type", "qwen2")}, nil, []string{`"model.layers.0.self_attn.q_proj.bias"`}},

		// Tied heads.
		{"tied false, head absent", edits{without("lm_head.weight")}, nil, []string{"config.json", "tie_word_embeddings is false", "lm_head.weight"}},

		// Tokens.
		{"token beyond the embedding", edits{func(m *ct.Model) { m.Tokenizer = func(t map[string]any) { ct.AddToken(t, 400, "<|far|>", true) } }}, nil,
			[]string{"tokenizer.json", `"<|far|>"`, "id 400", "320 rows"}},
		{"first token beyond the embedding", edits{func(m *ct.Model) { m.Tokenizer = func(t map[string]any) { ct.AddToken(t, 320, "<|next|>", true) } }}, nil,
			[]string{"tokenizer.json", `"<|next|>"`, "id 320", "320 rows"}},
		{"vocabulary beyond the embedding", edits{func(m *ct.Model) { m.Vocab = 319 }}, nil, []string{"tokenizer.json", "id 319", "319 rows"}},
		{"negative token", edits{func(m *ct.Model) { m.Tokenizer = func(t map[string]any) { ct.AddToken(t, -1, "<|n|>", true) } }}, nil, []string{"tokenizer.json", "negative"}},
		{"begin beyond the embedding", edits{set("bos_token_id", 320)}, nil, []string{"config.json", "bos_token_id", "320"}},
		{"end is a string", edits{set("eos_token_id", "</s>")}, nil, []string{"config.json", "eos_token_id"}},
		{"end list of strings", edits{file("generation_config.json", `{"eos_token_id":["a"]}`)}, nil, []string{"generation_config.json", "eos_token_id"}},
		{"broken generation_config", edits{file("generation_config.json", `{`)}, nil, []string{"generation_config.json", "ends too early"}},
		{"broken tokenizer_config", edits{file("tokenizer_config.json", `[]`)}, nil, []string{"tokenizer_config.json", "not a JSON object"}},
		{"end token without content", edits{file("tokenizer_config.json", `{"eos_token":{"id":1}}`)}, nil, []string{"tokenizer_config.json", "eos_token"}},
		{"no tokenizer", nil, remove{"tokenizer.json"}, []string{"tokenizer.json", "missing"}},
		{"tokenizer.model only", edits{file("tokenizer.model", "x")}, remove{"tokenizer.json"}, []string{"tokenizer.json", "missing", "tokenizer.model alone is not enough"}},
		{"unigram", edits{func(m *ct.Model) {
			m.Tokenizer = func(t map[string]any) { t["model"] = map[string]any{"type": "Unigram", "vocab": []any{}} }
		}}, nil, []string{"tokenizer.json", `"Unigram"`}},
		{"broken tokenizer", edits{file("tokenizer.json", `{"model":`)}, nil, []string{"tokenizer.json"}},
		{"tokenizer without vocab", edits{file("tokenizer.json", `{}`)}, nil, []string{"tokenizer.json", "model.vocab"}},
		{"broken template", edits{file("tokenizer_config.json", `{"chat_template":7}`)}, nil, []string{"tokenizer_config.json", "chat_template"}},
		{"broken template list", edits{file("tokenizer_config.json", `{"chat_template":[7]}`)}, nil, []string{"tokenizer_config.json", "chat_template"}},

		{"no config", nil, remove{"config.json"}, []string{"config.json", "missing"}},
		{"broken config", edits{file("config.json", `{"a":1,}`)}, nil, []string{"config.json", "syntax error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := ct.Dir(t, c.edits...)
			for _, name := range c.remove {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			cp, err := checkpoint.Open(dir)
			if err == nil {
				cp.Close()
				t.Fatal("opened")
			}
			refusal(t, err, append(c.want, dir)...)
		})
	}
}

// refusal checks that err is bad input, one line long, and names everything wanted.
func refusal(t *testing.T, err error, want ...string) {
	t.Helper()
	if !errors.Is(err, format.ErrInput) {
		t.Errorf("not ErrInput: %v", err)
	}
	msg := err.Error()
	if strings.Contains(msg, "\n") {
		t.Errorf("more than one line: %q", msg)
	}
	for _, w := range want {
		if !strings.Contains(msg, w) {
			t.Errorf("%q lacks %q", msg, w)
		}
	}
}

func TestOpenNotADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	for range 2 { // absent, then a file
		_, err := checkpoint.Open(path)
		refusal(t, err, path)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenAccepts opens variants and compares every tensor with what was written.
func TestOpenAccepts(t *testing.T) {
	oddHeader := func(m *ct.Model) {
		ts := m.Weights()
		data := ct.Encode(ts)
		n := binary.LittleEndian.Uint64(data)
		head := string(data[8 : 8+n])
		head += strings.Repeat(" ", 1+len(head)%2) // an odd length: F32, F16 and BF16 all begin at odd addresses
		file("model.safetensors", string(ct.ST(head, data[8+n:])))(m)
	}
	for _, c := range []struct {
		name     string
		edits    edits
		warnings []string // parts of the warnings, one each
	}{
		{"one file", nil, nil},
		{"two shards", edits{two}, nil},
		{"thirty shards", edits{func(m *ct.Model) { m.Shards = 30 }}, nil},
		{"other shard names", edits{two, func(m *ct.Model) { m.Names = []string{"part-a.safetensors", "part-b.safetensors"} }}, nil},
		{"consolidated beside shards", edits{two, file("consolidated.safetensors", stray)}, []string{"ignored: consolidated.safetensors"}},
		{"adapter beside shards", edits{two, file("adapter_model.safetensors", stray)}, []string{"ignored: adapter_model.safetensors"}},
		{"damaged file beside shards", edits{two, file("consolidated.safetensors", "junk")}, []string{"ignored: consolidated.safetensors"}},
		{"consolidated beside the model", edits{file("consolidated.safetensors", stray)}, []string{"ignored: consolidated.safetensors"}},
		{"single file of another name", edits{func(m *ct.Model) {
			m.Files = map[string]string{"weights.safetensors": string(ct.Encode(m.Weights()))}
		}}, nil},
		{"odd header", edits{oddHeader}, nil},
		{"null quantization_config", edits{set("quantization_config", nil)}, nil},
		{"float16", edits{func(m *ct.Model) { m.DType, m.NormDType = "F16", "F16" }}, nil},
		{"norms in F32, no dtype key", edits{func(m *ct.Model) { m.NormDType = "F32" }, set("torch_dtype", ct.Absent)}, nil},
		{"F32 under another dtype key", edits{func(m *ct.Model) { m.DType, m.NormDType = "F32", "F32" }, set("dtype", "bfloat16")}, nil},
		{"rotary buffers", edits{extra("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", []int{8}, 32)}, nil},
		{"unused tensor", edits{extra("model.layers.7.mlp.up_proj.weight", "I64", []int{1}, 8)}, []string{`1 tensors are not used: model.layers.7.mlp.up_proj.weight`}},
		{"nulls", edits{func(m *ct.Model) { m.KVHeads = 4 }, set("head_dim", nil), set("num_key_value_heads", nil), set("rope_scaling", nil), set("sliding_window", nil)}, nil},
		{"head_dim 32", edits{func(m *ct.Model) { m.HeadDim = 32 }}, nil},
		{"more rows than tokens", edits{func(m *ct.Model) { m.Vocab = 384 }}, nil},
		{"qwen2", edits{func(m *ct.Model) { m.QKVBias = true }, set("model_type", "qwen2")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := ct.Tiny()
			var want []ct.Tensor
			dir := ct.Dir(t, append(c.edits, func(mm *ct.Model) { m, want = mm, mm.Weights() })...)
			if c.name == "single file of another name" {
				if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
					t.Fatal(err)
				}
			}
			cp := open(t, dir)
			if len(cp.Warnings) != len(c.warnings) {
				t.Fatalf("warnings %q", cp.Warnings)
			}
			for i, w := range c.warnings {
				if !strings.Contains(cp.Warnings[i], w) || !strings.Contains(cp.Warnings[i], dir) {
					t.Errorf("warning %q lacks %q", cp.Warnings[i], w)
				}
			}
			for _, w := range want {
				info, data, err := cp.Tensor(w.Name)
				if err != nil {
					t.Fatal(err)
				}
				if info.DType != w.DType || !slices.Equal(info.Shape, w.Shape) || !slices.Equal(data, w.Data) {
					t.Errorf("%s: %s %v, %d bytes", w.Name, info.DType, info.Shape, len(data))
				}
				cp.Release(w.Name)
			}
			if got := cp.Config; got.Heads != m.Heads || got.KVHeads != m.KVHeads || got.HeadDim != m.HeadDim || got.Vocab != m.Vocab || got.QKVBias != m.QKVBias || got.SlidingWindow != 0 {
				t.Errorf("config %+v", got)
			}
			if _, _, err := cp.Tensor("model.none"); err == nil || !strings.Contains(err.Error(), `"model.none"`) {
				t.Errorf("unknown tensor: %v", err)
			}
		})
	}
}

func open(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	cp, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Close(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// TestMixedDTypes: the dtype is each tensor's own, and the values are those of the twin in one dtype.
func TestMixedDTypes(t *testing.T) {
	mixed := open(t, ct.Dir(t, func(m *ct.Model) { m.NormDType = "F32" }, set("torch_dtype", ct.Absent)))
	twin := open(t, ct.Dir(t))
	for _, name := range []string{"model.norm.weight", "model.layers.1.input_layernorm.weight", up0} {
		a, b := decoded(t, mixed, name), decoded(t, twin, name)
		if !slices.Equal(a, b) {
			t.Errorf("%s differs", name)
		}
	}
	if info, _, _ := mixed.Tensor("model.norm.weight"); info.DType != "F32" {
		t.Errorf("norm is %s", info.DType)
	}
	if info, _, _ := mixed.Tensor(up0); info.DType != "BF16" {
		t.Errorf("up_proj is %s", info.DType)
	}
}

func decoded(t *testing.T, c *checkpoint.Checkpoint, name string) []float32 {
	t.Helper()
	info, data, err := c.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	x := ct.Tensor{DType: info.DType, Data: data}
	return x.Values()
}

func TestTiedHead(t *testing.T) {
	tied := func(v any) func(*ct.Model) { return set("tie_word_embeddings", v) }
	same := func(m *ct.Model) {
		m.Edit = func(ts []ct.Tensor) []ct.Tensor {
			head := ct.Find(ts, "lm_head.weight")
			head.Data = ct.Find(ts, "model.embed_tokens.weight").Data
			return ts
		}
	}
	noHead := without("lm_head.weight")
	const embedding, head = checkpoint.EmbeddingName, checkpoint.LMHeadName
	for _, c := range []struct {
		name    string
		edits   edits
		head    string
		warning string
	}{
		{"true, absent", edits{tied(true), noHead}, embedding, ""},
		{"true, present and equal", edits{tied(true), same}, embedding, ""},
		{"true, present and different", edits{tied(true)}, embedding, "differs from the embedding"},
		{"true, present in another dtype", edits{tied(true), edit("lm_head.weight", func(t *ct.Tensor) { *t = t.Convert("F32") })}, embedding, "differs from the embedding"},
		{"true, present and different, two shards", edits{tied(true), two}, embedding, "differs from the embedding"},
		{"not given, absent", edits{tied(ct.Absent), noHead}, embedding, ""},
		{"null, absent", edits{tied(nil), noHead, two}, embedding, ""},
		{"not given, present", edits{tied(ct.Absent)}, head, ""},
		{"null, present", edits{tied(nil)}, head, ""},
		{"false, present", edits{tied(false)}, head, ""},
		{"false, present and equal", edits{tied(false), same}, head, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cp := open(t, ct.Dir(t, c.edits...))
			if cp.HeadName() != c.head || cp.Config.Tied != (c.head == embedding) {
				t.Errorf("head %s, tied %v", cp.HeadName(), cp.Config.Tied)
			}
			if _, _, err := cp.Tensor(cp.HeadName()); err != nil {
				t.Error(err)
			}
			if _, _, err := cp.Tensor(head); (err == nil) != (c.head == head) {
				t.Errorf("lm_head.weight: %v", err)
			}
			switch {
			case c.warning == "" && len(cp.Warnings) > 0:
				t.Errorf("warnings %q", cp.Warnings)
			case c.warning != "" && (len(cp.Warnings) != 1 || !strings.Contains(cp.Warnings[0], c.warning) || !strings.Contains(cp.Warnings[0], "lm_head.weight")):
				t.Errorf("warnings %q lack %q", cp.Warnings, c.warning)
			}
		})
	}
}

func TestBeginAndEnd(t *testing.T) {
	gen := func(s string) func(*ct.Model) { return file("generation_config.json", s) }
	tok := func(s string) func(*ct.Model) { return file("tokenizer_config.json", s) }
	e7 := func(m *ct.Model) {
		m.Tokenizer = func(t map[string]any) { ct.AddToken(t, 7, "<|e|>", true) } // id 7 was a byte before
	}
	for _, c := range []struct {
		name    string
		edits   edits
		bos     int
		eos     []int
		warning string
	}{
		{"config only", nil, 1, []int{2}, ""},
		{"config list", edits{set("eos_token_id", []int{7, 2, 7})}, 1, []int{2, 7}, ""},
		{"generation_config list", edits{gen(`{"eos_token_id":[2,7]}`)}, 1, []int{2, 7}, ""},
		{"generation_config number", edits{gen(`{"eos_token_id":7,"bos_token_id":5}`)}, 1, []int{2, 7}, ""},
		{"tokenizer_config string", edits{tok(`{"eos_token":"<|e|>"}`), e7}, 1, []int{2, 7}, ""},
		{"tokenizer_config object", edits{tok(`{"eos_token":{"content":"<|e|>","special":true}}`), e7}, 1, []int{2, 7}, ""},
		{"token of the vocabulary", edits{tok(`{"eos_token":"abc"}`)}, 1, []int{2, 261}, ""},
		{"tokenizer_config alone", edits{tok(`{"eos_token":"<|e|>"}`), e7, set("eos_token_id", ct.Absent)}, 1, []int{7}, ""},
		{"all three", edits{tok(`{"eos_token":"<|e|>"}`), e7, gen(`{"eos_token_id":[9,2]}`), set("eos_token_id", 3)}, 1, []int{2, 3, 7, 9}, ""},
		{"nulls", edits{tok(`{"eos_token":null,"bos_token":null}`), gen(`{"eos_token_id":null,"bos_token_id":null}`)}, 1, []int{2}, ""},
		{"config null", edits{set("eos_token_id", nil), set("bos_token_id", nil), gen(`{"eos_token_id":[2,7],"bos_token_id":4}`)}, 4, []int{2, 7}, ""},
		{"begin from tokenizer_config", edits{set("bos_token_id", nil), tok(`{"bos_token":"<s>"}`)}, 1, []int{2}, ""},
		{"none at all", edits{set("eos_token_id", nil), set("bos_token_id", ct.Absent)}, -1, nil, "no file names an end token"},
		{"negative", edits{set("eos_token_id", []int{-1, 2}), set("bos_token_id", -1)}, -1, []int{2}, "bos_token_id -1"},
		{"outside", edits{gen(`{"eos_token_id":[2,320]}`)}, 1, []int{2}, "eos_token_id 320"},
		{"unknown text", edits{tok(`{"eos_token":"<|nowhere|>"}`)}, 1, []int{2}, `eos_token "<|nowhere|>"`},
		{"empty text", edits{tok(`{"eos_token":""}`)}, 1, []int{2}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cp := open(t, ct.Dir(t, c.edits...))
			if cp.Config.BOS != c.bos || !slices.Equal(cp.Config.EOS, c.eos) {
				t.Errorf("begin %d, ends %v, want %d and %v", cp.Config.BOS, cp.Config.EOS, c.bos, c.eos)
			}
			if got := strings.Join(cp.Warnings, "\n"); c.warning == "" && got != "" || !strings.Contains(got, c.warning) {
				t.Errorf("warnings %q, want %q", cp.Warnings, c.warning)
			}
		})
	}
}

func TestChatTemplate(t *testing.T) {
	jinja := file("chat_template.jinja", "from the file {{ x }}\n")
	tok := func(s string) func(*ct.Model) { return file("tokenizer_config.json", s) }
	for _, c := range []struct {
		name  string
		edits edits
		want  string
	}{
		{"none", nil, ""},
		{"file", edits{jinja}, "from the file {{ x }}\n"},
		{"file before tokenizer_config", edits{jinja, tok(`{"chat_template":"other"}`)}, "from the file {{ x }}\n"},
		{"string", edits{tok(`{"chat_template":"text \"é\""}`)}, `text "é"`},
		{"null", edits{tok(`{"chat_template":null}`)}, ""},
		{"list", edits{tok(`{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}`)}, "d"},
		{"list without default", edits{tok(`{"chat_template":[{"name":"tool_use","template":"t"}]}`)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := open(t, ct.Dir(t, c.edits...)).ChatTemplate(); err != nil || got != c.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	cp := open(t, ct.Dir(t, two, file("generation_config.json", "{}"), file("notes.txt", "x"), file("consolidated.safetensors", stray)))
	var got []string
	for _, f := range cp.Files() {
		rel, err := filepath.Rel(cp.Dir, f)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rel)
	}
	if want := []string{"config.json", "tokenizer.json", "generation_config.json", index, shard1, shard2}; !reflect.DeepEqual(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if p := cp.Path(checkpoint.EmbeddingName); filepath.Base(p) != shard1 {
		t.Errorf("embedding in %q", p)
	}
}

// TestSymlinks: hub caches keep files as links into another directory.
func TestSymlinks(t *testing.T) {
	real := ct.Dir(t, two)
	dir := t.TempDir()
	list, err := os.ReadDir(real)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := os.Symlink(filepath.Join(real, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	if err := os.Remove(filepath.Join(real, shard1)); err != nil {
		t.Fatal(err)
	}
	_, err = checkpoint.Open(dir)
	refusal(t, err, shard1, "absent")
}

// TestManyOpens: nothing stays open or mapped after a refusal.
func TestManyOpens(t *testing.T) {
	dir := ct.Dir(t, two, remap("model.norm.weight", shard1))
	for range 50 {
		if _, err := checkpoint.Open(dir); err == nil {
			t.Fatal("opened")
		}
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	maps, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), dir); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}
