package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/x448/float16"

	"neuroprefetcher/format/gguf/gguftest"
)

// model is a small model in Hugging Face's layout, from which GGUF files are made as the converter to GGUF does.
type model struct {
	arch                                       string
	layers, hidden, inter, heads, kv, dim, voc int
	weights                                    map[string][]float32 // Hugging Face names; values that float16 holds exactly
	order                                      []string
	shapes                                     map[string][]int
	tied                                       bool
}

func newModel(arch string, hidden, inter, heads, kv, dim, voc int, tied bool) *model {
	m := &model{arch: arch, layers: 2, hidden: hidden, inter: inter, heads: heads, kv: kv, dim: dim, voc: voc, tied: tied, weights: map[string][]float32{}, shapes: map[string][]int{}}
	r := rand.New(rand.NewPCG(7, uint64(hidden)))
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		w := make([]float32, n)
		for i := range w {
			w[i] = float16.Fromfloat32(float32(r.NormFloat64())).Float32()
		}
		m.weights[name], m.shapes[name] = w, shape
		m.order = append(m.order, name)
	}
	add("model.embed_tokens.weight", voc, hidden)
	for l := range m.layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", hidden)
		add(p+"self_attn.q_proj.weight", heads*dim, hidden)
		add(p+"self_attn.k_proj.weight", kv*dim, hidden)
		add(p+"self_attn.v_proj.weight", kv*dim, hidden)
		add(p+"self_attn.o_proj.weight", hidden, heads*dim)
		if arch == "qwen2" {
			add(p+"self_attn.q_proj.bias", heads*dim)
			add(p+"self_attn.k_proj.bias", kv*dim)
			add(p+"self_attn.v_proj.bias", kv*dim)
		}
		add(p+"post_attention_layernorm.weight", hidden)
		add(p+"mlp.gate_proj.weight", inter, hidden)
		add(p+"mlp.up_proj.weight", inter, hidden)
		add(p+"mlp.down_proj.weight", hidden, inter)
	}
	add("model.norm.weight", hidden)
	if !tied {
		add("lm_head.weight", voc, hidden)
	}
	return m
}

// tiny is the model most tests use.
func tiny(arch string) *model { return newModel(arch, 64, 96, 4, 2, 16, 300, arch == "qwen2") }

// ggufName is llama.cpp's name of a Hugging Face tensor, written down independently of the importer.
func ggufName(hf string) string {
	switch hf {
	case "model.embed_tokens.weight":
		return "token_embd.weight"
	case "model.norm.weight":
		return "output_norm.weight"
	case "lm_head.weight":
		return "output.weight"
	}
	var l int
	var rest string
	if n, err := fmt.Sscanf(hf, "model.layers.%d.%s", &l, &rest); n != 2 || err != nil {
		panic(hf)
	}
	name := map[string]string{
		"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
		"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
		"self_attn.q_proj.bias": "attn_q.bias", "self_attn.k_proj.bias": "attn_k.bias", "self_attn.v_proj.bias": "attn_v.bias",
		"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	}[rest]
	if name == "" {
		panic(hf)
	}
	return fmt.Sprintf("blk.%d.%s", l, name)
}

// permute is the converter's reshape(heads, 2, d/2, cols).swapaxes(1, 2): element (h, j, i) goes to (h, i, j).
func permute[T any](w []T, heads, rows, cols int) []T {
	out, d := make([]T, 0, len(w)), rows/heads
	for h := range heads {
		for i := range d / 2 {
			for j := range 2 {
				r := h*d + j*(d/2) + i
				out = append(out, w[r*cols:(r+1)*cols]...)
			}
		}
	}
	return out
}

// headsOf says how many heads a tensor is permuted in; 0 for not at all.
func (m *model) headsOf(hf string) int {
	switch {
	case m.arch != "llama":
		return 0
	case len(hf) > 13 && hf[len(hf)-13:] == "q_proj.weight":
		return m.heads
	case len(hf) > 13 && hf[len(hf)-13:] == "k_proj.weight":
		return m.kv
	}
	return 0
}

// keys sets the header of the model's architecture.
func (m *model) keys(f *gguftest.File) {
	a := m.arch + "."
	f.Set(a+"block_count", uint32(m.layers)).Set(a+"context_length", uint32(256)).Set(a+"embedding_length", uint32(m.hidden)).Set(a+"feed_forward_length", uint32(m.inter))
	f.Set(a+"attention.head_count", uint32(m.heads)).Set(a+"attention.head_count_kv", uint32(m.kv)).Set(a+"attention.layer_norm_rms_epsilon", float32(1e-5))
	f.Set(a+"rope.freq_base", float32(10000)).Set(a+"rope.dimension_count", uint32(m.dim))
	if m.dim*m.heads != m.hidden {
		f.Set(a+"attention.key_length", uint32(m.dim)).Set(a+"attention.value_length", uint32(m.dim))
	}
}

// file makes the GGUF: matrices float16, vectors float32, a byte-level tokenizer.
func (m *model) file() *gguftest.File {
	f := gguftest.New(m.arch)
	m.keys(f)
	byteLevelKeys(f, "smollm", m.voc)
	for _, name := range m.order {
		w, shape := m.weights[name], m.shapes[name]
		if h := m.headsOf(name); h > 0 {
			w = permute(w, h, shape[0], shape[1])
		}
		if len(shape) == 1 {
			f.Add(ggufName(name), "F32", gguftest.F32(w), shape...)
			continue
		}
		f.Add(ggufName(name), "F16", gguftest.U16(halves(w)), shape...)
	}
	return f
}

func halves(w []float32) []uint16 {
	out := make([]uint16, len(w))
	for i, v := range w {
		out[i] = float16.Fromfloat32(v).Bits()
	}
	return out
}

// byteAlphabet are the 256 characters that stand for bytes in byte-level vocabularies, by byte.
func byteAlphabet() []string {
	out := make([]string, 256)
	next := rune(256)
	for b := range out {
		switch r := rune(b); {
		case r >= '!' && r <= '~', r >= '¡' && r <= '¬', r >= '®' && r <= 'ÿ':
			out[b] = string(r)
		default:
			out[b] = string(next)
			next++
		}
	}
	return out
}

// byteLevelKeys sets a tokenizer of three control tokens, 256 bytes and a few merges, filled up to n with unused tokens.
func byteLevelKeys(f *gguftest.File, pre string, n int) {
	tokens := append([]string{"<|endoftext|>", "<s>", "</s>"}, byteAlphabet()...)
	merges := []string{"t h", "th e", "a n", "Ġ the"}
	tokens = append(tokens, "th", "the", "an", "Ġthe")
	types := make([]int32, 0, n)
	for i := range tokens {
		types = append(types, map[bool]int32{true: 3, false: 1}[i < 3])
	}
	for i := len(tokens); i < n; i++ {
		tokens, types = append(tokens, fmt.Sprintf("[PAD%d]", i)), append(types, 5)
	}
	f.Set(keyModel, "gpt2").Set(keyPre, pre).Set(keyTokens, tokens).Set(keyTypes, types).Set(keyMerges, merges)
	f.Set("tokenizer.ggml.bos_token_id", uint32(1)).Set("tokenizer.ggml.eos_token_id", uint32(2))
	f.Set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
}

// importFile writes the file and imports it into a new directory.
func importFile(t testing.TB, f *gguftest.File) (string, Report, error) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	r, err := Import(context.Background(), f.Write(t, filepath.Join(dir, "m.gguf")), out, Options{})
	return out, r, err
}

func mustImport(t testing.TB, f *gguftest.File) (string, Report) {
	t.Helper()
	out, r, err := importFile(t, f)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

func readJSON(t testing.TB, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}
