package importer

import (
	"bytes"
	"slices"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf"
)

// config is what config.json is made from.
type config struct {
	arch         string // the GGUF's: "llama" or "qwen2"
	layers       int
	hidden       int
	intermediate int
	heads        int
	kvHeads      int
	headDim      int
	vocab        int // rows of the embedding
	positions    int
	window       int // sliding window; 0: none
	eps          float64
	theta        float64
	scaling      map[string]any // rope_scaling, nil for none
	tied         bool
}

// readConfig takes the shape of the model from the header and refuses what a Llama, Mistral or Qwen2 checkpoint cannot express.
func readConfig(g *gguf.File, m meta) (*config, error) {
	arch, ok, err := m.text("general.architecture")
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, m.missing("general.architecture")
	case arch != "llama" && arch != "qwen2":
		return nil, format.Inputf("%s: key %q: architecture %q is not supported (llama, which includes mistral, and qwen2 are)", m.path, "general.architecture", arch)
	}
	if n, _, err := m.integer("split.count"); err != nil {
		return nil, err
	} else if n > 1 {
		return nil, format.Hint(format.Inputf("%s: key %q: the model is split into %d files", m.path, "split.count", n), "join the parts with gguf-split --merge first")
	}
	c := &config{arch: arch}
	k := func(s string) string { return arch + "." + s }
	for _, f := range []struct {
		dst    *int
		key    string
		def    int
		lo, hi int
	}{
		{&c.layers, "block_count", -1, 1, format.MaxLayers},
		{&c.hidden, "embedding_length", -1, 1, format.MaxHidden},
		{&c.intermediate, "feed_forward_length", -1, 1, format.MaxNeurons},
		{&c.heads, "attention.head_count", -1, 1, format.MaxHeads},
		{&c.positions, "context_length", -1, 1, format.MaxPositions},
		{&c.window, "attention.sliding_window", 0, 0, format.MaxPositions},
	} {
		if *f.dst, err = m.size(k(f.key), f.def, f.lo, f.hi); err != nil {
			return nil, err
		}
	}
	if c.kvHeads, err = m.size(k("attention.head_count_kv"), c.heads, 1, c.heads); err != nil {
		return nil, err
	}
	if c.heads%c.kvHeads != 0 {
		return nil, format.Inputf("%s: key %q: %d does not divide the %d heads", m.path, k("attention.head_count_kv"), c.kvHeads, c.heads)
	}
	def := -1
	if c.hidden%c.heads == 0 {
		def = c.hidden / c.heads
	}
	if c.headDim, err = m.size(k("attention.key_length"), def, 2, format.MaxHeadDim); err != nil {
		return nil, err
	}
	if c.headDim%2 != 0 {
		return nil, format.Inputf("%s: key %q: heads of %d values cannot be rotated in pairs", m.path, k("attention.key_length"), c.headDim)
	}
	for _, key := range []string{k("attention.value_length"), k("rope.dimension_count")} {
		if d, err := m.size(key, c.headDim, 0, format.MaxHeadDim); err != nil {
			return nil, err
		} else if d != c.headDim {
			return nil, format.Inputf("%s: key %q: %d differs from the head size %d: not supported", m.path, key, d, c.headDim)
		}
	}
	eps, ok, err := m.number(k("attention.layer_norm_rms_epsilon"))
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, m.missing(k("attention.layer_norm_rms_epsilon"))
	case eps < 0 || eps >= 1:
		return nil, format.Inputf("%s: key %q: %v is not a small positive number", m.path, k("attention.layer_norm_rms_epsilon"), eps)
	}
	c.eps = eps
	if err := refuseExtras(m, arch); err != nil {
		return nil, err
	}
	if err := c.readRope(g, m); err != nil {
		return nil, err
	}
	embd, ok := g.Find("token_embd.weight")
	if !ok || len(embd.Shape) != 2 {
		return nil, format.Inputf("%s: tensor %q is missing or not a matrix", m.path, "token_embd.weight")
	}
	if c.vocab = embd.Shape[0]; c.vocab > format.MaxVocab {
		return nil, format.Inputf("%s: tensor %q: %d rows, limit %d", m.path, embd.Name, c.vocab, format.MaxVocab)
	}
	_, head := g.Find("output.weight")
	c.tied = !head
	return c, nil
}

// refuseExtras refuses by name the keys that change the arithmetic in ways that the checkpoint cannot say. A value that changes nothing passes.
func refuseExtras(m meta, arch string) error {
	for _, x := range []struct {
		key     string
		neutral []float64
	}{
		{"expert_count", []float64{0}},
		{"attention.scale", []float64{0}},
		{"attention.clamp_kqv", []float64{0}},
		{"logit_scale", []float64{0, 1}},
		{"embedding_scale", []float64{0, 1}},
		{"residual_scale", []float64{0, 1}},
		{"attn_logit_softcapping", []float64{0}},
		{"final_logit_softcapping", []float64{0}},
		{"rope.scaling.attn_factor", []float64{0, 1}},
	} {
		key := arch + "." + x.key
		v, ok, err := m.number(key)
		if err != nil {
			return err
		}
		if ok && !slices.Contains(x.neutral, v) {
			return format.Inputf("%s: key %q: %v is not supported", m.path, key, v)
		}
	}
	for key, want := range map[string]bool{"attention.causal": true, "use_parallel_residual": false} {
		key = arch + "." + key
		v, err := m.flag(key, want)
		if err != nil {
			return err
		}
		if v != want {
			return format.Inputf("%s: key %q: %v is not supported", m.path, key, v)
		}
	}
	return nil
}

// json is config.json as Hugging Face writes it, with every default spelt out.
func (c *config) json(tok *vocabulary) any {
	out := struct {
		Architectures []string       `json:"architectures"`
		ModelType     string         `json:"model_type"`
		AttentionBias *bool          `json:"attention_bias,omitempty"`
		BOS           *int           `json:"bos_token_id"`
		EOS           *int           `json:"eos_token_id"`
		HeadDim       int            `json:"head_dim"`
		HiddenAct     string         `json:"hidden_act"`
		Hidden        int            `json:"hidden_size"`
		Intermediate  int            `json:"intermediate_size"`
		Positions     int            `json:"max_position_embeddings"`
		MLPBias       *bool          `json:"mlp_bias,omitempty"`
		Heads         int            `json:"num_attention_heads"`
		Layers        int            `json:"num_hidden_layers"`
		KVHeads       int            `json:"num_key_value_heads"`
		Eps           decimal        `json:"rms_norm_eps"`
		Scaling       map[string]any `json:"rope_scaling"`
		Theta         decimal        `json:"rope_theta"`
		Window        *int           `json:"sliding_window,omitempty"`
		UseWindow     *bool          `json:"use_sliding_window,omitempty"`
		MaxWindow     *int           `json:"max_window_layers,omitempty"`
		Tied          bool           `json:"tie_word_embeddings"`
		DType         string         `json:"torch_dtype"`
		Vocab         int            `json:"vocab_size"`
	}{
		BOS: optional(tok.bos), EOS: optional(tok.eos), HeadDim: c.headDim, HiddenAct: "silu", Hidden: c.hidden, Intermediate: c.intermediate,
		Positions: c.positions, Heads: c.heads, Layers: c.layers, KVHeads: c.kvHeads, Eps: decimal(c.eps), Scaling: c.scaling, Theta: decimal(c.theta),
		Tied: c.tied, DType: "float16", Vocab: c.vocab,
	}
	no := false
	switch {
	case c.arch == "qwen2":
		out.ModelType, out.Architectures, out.UseWindow = "qwen2", []string{"Qwen2ForCausalLM"}, &no
		if c.window > 0 {
			// Every layer uses it: llama.cpp knows no first full layer.
			yes, none := true, 0
			out.Window, out.UseWindow, out.MaxWindow = &c.window, &yes, &none
		}
	case c.window > 0:
		out.ModelType, out.Architectures, out.Window = "mistral", []string{"MistralForCausalLM"}, &c.window
	default:
		out.ModelType, out.Architectures, out.AttentionBias, out.MLPBias = "llama", []string{"LlamaForCausalLM"}, &no, &no
	}
	return out
}

// decimal is a float that stays one in JSON: readers that check types take 10000.0 and not 10000.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat(nil, float64(d), 'g', -1, 64)
	if !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b, nil
}

// optional turns a negative id into null.
func optional(id int) *int {
	if id < 0 {
		return nil
	}
	return &id
}

// generation is generation_config.json: all ids that end a text.
func generation(tok *vocabulary) any {
	out := struct {
		BOS *int `json:"bos_token_id,omitempty"`
		EOS any  `json:"eos_token_id,omitempty"`
		Pad *int `json:"pad_token_id,omitempty"`
	}{BOS: optional(tok.bos), Pad: optional(tok.pad)}
	switch len(tok.stops) {
	case 0:
	case 1:
		out.EOS = tok.stops[0]
	default:
		out.EOS = tok.stops
	}
	return out
}
