package checkpointtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Model says what to write. Tiny gives the usual one; change its fields before Write.
type Model struct {
	Layers, Hidden, Intermediate, Heads, KVHeads, HeadDim, Vocab int

	Seed      uint64
	DType     string   // of matrices and biases: "BF16", "F16" or "F32"
	NormDType string   // of norms; the values are the same for all of them
	Tied      bool     // no lm_head.weight
	QKVBias   bool     // as qwen2 has
	Shards    int      // 1: model.safetensors; more: shards and an index
	Names     []string // of the shards, if not model-00001-of-00002.safetensors and so on

	// Config is config.json's content beside the shape, which Write fills in for keys that are not there. A nil value is
	// written as null, Absent keeps a key out.
	Config map[string]any
	// Edit changes the tensors before they are written.
	Edit func([]Tensor) []Tensor
	// Tokenizer changes tokenizer.json before it is written.
	Tokenizer func(map[string]any)
	// Index changes the weight_map of a sharded model before it is written.
	Index func(map[string]string)
	// Files are written last, over what is there.
	Files map[string]string
}

// Absent as a value in Model.Config keeps the key out of config.json.
var Absent = new(int)

// Tiny is the standard small model: llama, 3 layers, H = 64, M = 96, 4 heads of 16, 2 key-value heads, 320 tokens, BF16.
func Tiny() *Model {
	return &Model{
		Layers: 3, Hidden: 64, Intermediate: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: TokenizerSize,
		Seed: 1, DType: "BF16", NormDType: "BF16", Shards: 1,
		Config: map[string]any{
			"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "hidden_act": "silu", "max_position_embeddings": 256,
			"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
		},
	}
}

// Dir writes Tiny, changed by edits, into a directory of the test and gives its path.
func Dir(tb testing.TB, edits ...func(*Model)) string {
	tb.Helper()
	m := Tiny()
	for _, e := range edits {
		e(m)
	}
	dir := filepath.Join(tb.TempDir(), "checkpoint")
	if err := m.Write(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Write makes dir a checkpoint.
func (m *Model) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	files := map[string][]byte{"config.json": m.config()}
	tok := Tokenizer()
	if m.Tokenizer != nil {
		m.Tokenizer(tok)
	}
	files["tokenizer.json"] = marshal(tok)
	ts := m.Weights()
	if m.Edit != nil {
		ts = m.Edit(ts)
	}
	m.shard(files, ts)
	for name, text := range m.Files {
		files[name] = []byte(text)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) config() []byte {
	out := map[string]any{
		"hidden_size": m.Hidden, "intermediate_size": m.Intermediate, "num_hidden_layers": m.Layers, "num_attention_heads": m.Heads,
		"num_key_value_heads": m.KVHeads, "vocab_size": m.Vocab, "tie_word_embeddings": m.Tied,
	}
	if m.HeadDim*m.Heads != m.Hidden {
		out["head_dim"] = m.HeadDim
	}
	for k, v := range m.Config {
		if v == Absent {
			delete(out, k)
			continue
		}
		out[k] = v
	}
	return marshal(out)
}

// shard adds the weight files: tensors stay in order and are spread evenly.
func (m *Model) shard(files map[string][]byte, ts []Tensor) {
	if m.Shards <= 1 && len(m.Names) == 0 {
		files["model.safetensors"] = Encode(ts)
		return
	}
	names := m.Names
	for i := range m.Shards - len(names) {
		names = append(names, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, m.Shards))
	}
	index := map[string]string{}
	for i, name := range names {
		part := ts[i*len(ts)/len(names) : (i+1)*len(ts)/len(names)]
		for _, t := range part {
			index[t.Name] = name
		}
		files[name] = Encode(part)
	}
	if m.Index != nil {
		m.Index(index)
	}
	files["model.safetensors.index.json"] = marshal(map[string]any{"metadata": map[string]any{}, "weight_map": index})
}

// Weights are the seeded tensors. A tensor's values depend on Seed, its name and its shape only, and are exact in BF16.
func (m *Model) Weights() []Tensor {
	q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	out := []Tensor{m.random("model.embed_tokens.weight", 0, 0.5, m.Vocab, m.Hidden)}
	norm := func(name string) {
		t := m.random(name, 1, 0.1, m.Hidden)
		out = append(out, t.Convert(m.NormDType))
	}
	for l := range m.Layers {
		p := "model.layers." + strconv.Itoa(l) + "."
		add := func(name string, shape ...int) { out = append(out, m.random(p+name, 0, 0.1, shape...)) }
		norm(p + "input_layernorm.weight")
		add("self_attn.q_proj.weight", q, m.Hidden)
		add("self_attn.k_proj.weight", kv, m.Hidden)
		add("self_attn.v_proj.weight", kv, m.Hidden)
		add("self_attn.o_proj.weight", m.Hidden, q)
		if m.QKVBias {
			add("self_attn.q_proj.bias", q)
			add("self_attn.k_proj.bias", kv)
			add("self_attn.v_proj.bias", kv)
		}
		norm(p + "post_attention_layernorm.weight")
		add("mlp.gate_proj.weight", m.Intermediate, m.Hidden)
		add("mlp.up_proj.weight", m.Intermediate, m.Hidden)
		add("mlp.down_proj.weight", m.Hidden, m.Intermediate)
	}
	norm("model.norm.weight")
	if !m.Tied {
		out = append(out, m.random("lm_head.weight", 0, 0.1, m.Vocab, m.Hidden))
	}
	return out
}

func (m *Model) random(name string, mean, dev float64, shape ...int) Tensor {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(m.Seed, h.Sum64()))
	n := 1
	for _, d := range shape {
		n *= d
	}
	vals := make([]float32, n)
	for i := range vals {
		vals[i] = BF16Value(BF16(float32(mean + dev*r.NormFloat64())))
	}
	return NewTensor(name, m.DType, shape, vals)
}

func marshal(v any) []byte {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err) // our own maps of plain values
	}
	return b
}

// Overflow makes the MLP of layer 1 overflow on every token but z: its norm is 3e38, and z's embedding is nothing.
func Overflow(m *Model) {
	m.NormDType = "F32"
	m.Edit = func(ts []Tensor) []Tensor {
		norm, embed := Find(ts, "model.layers.1.post_attention_layernorm.weight"), Find(ts, "model.embed_tokens.weight")
		for i := range m.Hidden {
			norm.Set(i, 3e38)
			embed.SetBits((FirstByte+'z')*m.Hidden+i, 0)
		}
		return ts
	}
}
