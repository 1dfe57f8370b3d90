package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"neuroprefetcher/format"
)

// Config is a model's configuration with every default and dialect resolved.
type Config struct {
	ModelType     string  `json:"model_type"`
	Layers        int     `json:"layers"`       // N
	Hidden        int     `json:"hidden"`       // H
	Intermediate  int     `json:"intermediate"` // M
	Heads         int     `json:"heads"`
	KVHeads       int     `json:"kv_heads"`
	HeadDim       int     `json:"head_dim"`
	Vocab         int     `json:"vocab"` // rows of the embedding; may be more than the tokenizer has tokens
	MaxPositions  int     `json:"max_positions"`
	RMSEps        float64 `json:"rms_eps"`
	Rope          Rope    `json:"rope"`
	SlidingWindow int     `json:"sliding_window,omitempty"` // 0: none. W: position i sees j with i-W < j <= i
	QKVBias       bool    `json:"qkv_bias,omitempty"`
	Tied          bool    `json:"tied,omitempty"` // the head is the embedding
	BOS           int     `json:"bos"`            // -1: none
	EOS           []int   `json:"eos"`            // ascending; generation ends at any of them
}

// families are the model types that are computed, with the defaults that transformers gives to absent keys.
var families = map[string]struct{ maxPositions int }{
	"llama":   {2048},
	"mistral": {4096 * 32},
	"qwen2":   {32768},
}

// ParseConfig reads config.json; name is the path for messages. Where the meaning of the file depends on the weights
// or on other files (an absent tie_word_embeddings, token ids) it says what config.json alone says; Open decides.
func ParseConfig(name string, data []byte) (*Config, error) {
	p, err := parseConfig(name, data)
	if err != nil {
		return nil, err
	}
	return p.config, nil
}

// parsed is config.json before the other files have been seen.
type parsed struct {
	config   *Config
	tied     *bool // nil: key not given
	warnings []string
}

func parseConfig(name string, data []byte) (*parsed, error) {
	o, err := newObject(name, data)
	if err != nil {
		return nil, err
	}
	// First what rules the whole model out.
	kind, _ := o.text("model_type")
	family, known := families[kind]
	switch {
	case o.err != nil:
		return nil, o.err
	case kind == "":
		return nil, format.Inputf("%s: model_type is missing", name)
	case !known:
		return nil, format.Hint(format.Inputf("%s: model_type %q is not supported", name, kind), "supported are llama, mistral and qwen2")
	}
	for _, key := range []string{"quantization_config", "compression_config"} {
		if v, ok := o.value(key); ok {
			return nil, format.Hint(format.Inputf("%s: %s is given (%s): quantised checkpoints are not supported", name, key, quantMethod(o, key, short(v))),
				"use the F32, F16 or BF16 original")
		}
	}
	p := &parsed{config: &Config{ModelType: kind}}
	o.refuseVariants(kind)
	c := p.config
	c.Layers = o.need("num_hidden_layers", 1, format.MaxLayers)
	c.Hidden = o.need("hidden_size", 1, format.MaxHidden)
	c.Intermediate = o.need("intermediate_size", 1, format.MaxNeurons)
	c.Heads = o.need("num_attention_heads", 1, format.MaxHeads)
	c.KVHeads = o.whole("num_key_value_heads", c.Heads, 1, format.MaxHeads)
	c.Vocab = o.need("vocab_size", 1, format.MaxVocab)
	c.MaxPositions = o.whole("max_position_embeddings", family.maxPositions, 1, format.MaxPositions)
	c.HeadDim = o.whole("head_dim", 0, 1, format.MaxHeadDim)
	if c.HeadDim == 0 && o.err == nil {
		if c.Hidden%c.Heads != 0 {
			o.fail("hidden_size", "%d is not a multiple of num_attention_heads %d, and head_dim is not given", c.Hidden, c.Heads)
		}
		c.HeadDim = c.Hidden / c.Heads
	}
	c.RMSEps = 1e-6
	if eps, ok := o.real("rms_norm_eps"); ok {
		c.RMSEps = eps
	}
	c.QKVBias = kind == "qwen2"
	c.Rope = o.rope()
	c.SlidingWindow = o.window(kind, c.Layers, p)
	if tied, ok := o.flag("tie_word_embeddings"); ok {
		p.tied, c.Tied = &tied, tied
	}
	c.BOS = -1
	if ids := o.ids("bos_token_id"); len(ids) > 0 {
		c.BOS = o.begin(ids[0], c.Vocab, p)
	}
	c.EOS = o.ends(o.ids("eos_token_id"), c.Vocab, p)
	if o.err != nil {
		return nil, o.err
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// refuseVariants names settings that change the arithmetic in a way that is not done here.
func (o *object) refuseVariants(kind string) {
	if act, ok := o.text("hidden_act"); ok && act != "silu" {
		o.fail("hidden_act", "is %q; only silu is supported", act)
	}
	if on, _ := o.flag("attention_bias"); on && kind != "qwen2" { // qwen2 always has them on q, k, v and never reads the key
		o.fail("attention_bias", "is true; %s with attention biases is not supported", kind)
	}
	if on, _ := o.flag("mlp_bias"); on {
		o.fail("mlp_bias", "is true; MLP biases are not supported")
	}
	o.refusePartialRotary()
}

func quantMethod(o *object, key, raw string) string {
	if b := o.sub(key); b != nil {
		if m, ok := b.text("quant_method"); ok {
			return "quant_method " + m
		}
	}
	return raw
}

// Validate holds a configuration, for example one from a manifest, against the limits and against itself.
func (c *Config) Validate() error {
	if _, ok := families[c.ModelType]; !ok {
		return format.Inputf("model_type %q is not supported", c.ModelType)
	}
	for _, v := range []struct {
		key        string
		val, limit int
	}{
		{"number of layers", c.Layers, format.MaxLayers},
		{"hidden size", c.Hidden, format.MaxHidden},
		{"intermediate size", c.Intermediate, format.MaxNeurons},
		{"number of attention heads", c.Heads, format.MaxHeads},
		{"number of key-value heads", c.KVHeads, c.Heads},
		{"head_dim", c.HeadDim, format.MaxHeadDim},
		{"vocabulary size", c.Vocab, format.MaxVocab},
		{"number of positions", c.MaxPositions, format.MaxPositions},
	} {
		if v.val < 1 || v.val > v.limit {
			return format.Inputf("%s is %d, want 1 to %d", v.key, v.val, v.limit)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return format.Inputf("%d attention heads are not a multiple of %d key-value heads", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return format.Inputf("head_dim %d is odd; rotary positions need pairs", c.HeadDim)
	case !(c.RMSEps > 0) || math.IsInf(c.RMSEps, 0):
		return format.Inputf("rms_norm_eps %v is not a positive number", c.RMSEps)
	case c.SlidingWindow < 0 || c.SlidingWindow > format.MaxPositions:
		return format.Inputf("sliding_window %d is out of range", c.SlidingWindow)
	case c.BOS < -1 || c.BOS >= c.Vocab:
		return format.Inputf("begin token %d is outside the vocabulary of %d", c.BOS, c.Vocab)
	case !slices.IsSorted(c.EOS) || len(c.EOS) > 0 && (c.EOS[0] < 0 || c.EOS[len(c.EOS)-1] >= c.Vocab):
		return format.Inputf("end tokens %s are not ascending ids of a vocabulary of %d", strings.Trim(fmt.Sprint(c.EOS), "[]"), c.Vocab)
	}
	return c.Rope.validate()
}
