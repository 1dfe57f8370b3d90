package enginetest

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// The tokens that every rig has; the token of byte b is FirstByte + b.
const (
	BOS       = 1
	EOS       = 2
	FirstByte = 3
	FirstFree = FirstByte + 256
)

// Rig is a model of no sense whose greedy token after i is Next[i]: every token has a random code of ±1, the layers
// add nothing to it, and the head's row j is the sum of the codes that j follows.
type Rig struct {
	Next     map[int]int
	Tokens   []string       // text of the tokens from FirstFree on
	Rows     int            // of embedding and head; 0 is 320
	NaN      []int          // tokens after which every score is not a number
	Template string         // chat template; "" is none
	AddBOS   bool           // the tokenizer puts <s> before a text
	Extra    map[int]string // more control tokens
}

// Chain makes each id follow the one before it.
func (r *Rig) Chain(ids ...int) {
	if r.Next == nil {
		r.Next = map[int]int{}
	}
	for i := 1; i < len(ids); i++ {
		r.Next[ids[i-1]] = ids[i]
	}
}

// Byte is the id of a byte's token.
func Byte(b byte) int { return FirstByte + int(b) }

const rigHidden, rigNeurons, rigLayers = 64, 96, 3

// Bundle writes the rig.
func (r *Rig) Bundle(t testing.TB) string {
	t.Helper()
	vocab := r.Rows
	if vocab == 0 {
		vocab = 320
	}
	config, err := json.Marshal(map[string]any{
		"model_type": "llama", "hidden_size": rigHidden, "intermediate_size": rigNeurons, "num_hidden_layers": rigLayers, "num_attention_heads": 4,
		"num_key_value_heads": 2, "vocab_size": vocab, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"hidden_act": "silu", "tie_word_embeddings": false, "bos_token_id": BOS, "eos_token_id": EOS,
	})
	check(t, err)
	c, err := checkpoint.ParseConfig("config.json", config)
	check(t, err)
	rnd := rand.New(rand.NewPCG(3, 5))
	halves := func(n int, f func() float32) []uint16 {
		out := make([]uint16, n)
		for i := range out {
			out[i] = kernels.F16Bits(f())
		}
		return out
	}
	ones := func() []float32 {
		out := make([]float32, rigHidden)
		for i := range out {
			out[i] = 1
		}
		return out
	}
	noise := func() float32 { return rnd.Float32() - 0.5 }
	p := parts{config: c, norm: ones(), files: map[string][]byte{bundle.MemberConfig: config, bundle.MemberTokenizer: r.tokenizer(t)}}
	if r.Template != "" {
		p.files[bundle.MemberTemplate] = []byte(r.Template)
	}
	p.embed = halves(vocab*rigHidden, func() float32 { return float32(rnd.IntN(2)*2 - 1) })
	head := make([]float32, vocab*rigHidden)
	for i, next := range r.Next {
		for k := range rigHidden {
			head[next*rigHidden+k] += kernels.F16Value(p.embed[i*rigHidden+k]) / 2
		}
	}
	for _, i := range r.NaN {
		for k := range rigHidden {
			p.embed[i*rigHidden+k] = 0x7e00
		}
	}
	i := -1
	p.head = halves(len(head), func() float32 { i++; return head[i] })
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for range rigLayers {
		p.layers = append(p.layers, &model.Layer{AttnNorm: ones(), MLPNorm: ones(), Q: halves(q*rigHidden, noise), K: halves(kv*rigHidden, noise),
			V: halves(kv*rigHidden, noise), O: make([]uint16, rigHidden*q)})
		rows := model.Rows{Mem: halves(rigNeurons*3*rigHidden, noise), Stride: 3 * rigHidden, N: rigNeurons}
		for n := range rigNeurons {
			clear(rows.Mem[n*rows.Stride+2*rigHidden : (n+1)*rows.Stride])
		}
		p.rows = append(p.rows, rows)
	}
	return p.write(t)
}

// tokenizer is a byte-level BPE without merges.
func (r *Rig) tokenizer(t testing.TB) []byte {
	t.Helper()
	vocab := map[string]int{}
	added := []map[string]any{}
	special := func(id int, text string) {
		added = append(added, map[string]any{"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	special(0, "<unk>")
	special(BOS, "<s>")
	special(EOS, "</s>")
	for id, text := range r.Extra {
		special(id, text)
	}
	for b := range 256 {
		vocab[spell(string([]byte{byte(b)}))] = FirstByte + b
	}
	for i, s := range r.Tokens {
		vocab[spell(s)] = FirstFree + i
	}
	d := map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []string{}},
	}
	if r.AddBOS {
		one := map[string]any{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}}
		a, b := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}
		d["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": []any{one, a}, "pair": []any{one, a, b},
			"special_tokens": map[string]any{"<s>": map[string]any{"id": "<s>", "ids": []int{BOS}, "tokens": []string{"<s>"}}}}
	}
	out, err := json.Marshal(d)
	check(t, err)
	return out
}

// spell writes bytes in the printable alphabet of byte-level vocabularies.
func spell(s string) string {
	var out []rune
	for _, b := range []byte(s) {
		if b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174 {
			out = append(out, rune(b))
			continue
		}
		n := 0 // how many bytes below b are not printable themselves
		for c := range int(b) {
			if !(c >= 33 && c <= 126 || c >= 161 && c <= 172 || c >= 174) {
				n++
			}
		}
		out = append(out, rune(256+n))
	}
	return string(out)
}
