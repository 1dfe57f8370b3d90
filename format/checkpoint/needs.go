package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"neuroprefetcher/format"
)

// Names of the tensors outside the layers.
const (
	EmbeddingName = "model.embed_tokens.weight" // (V, H)
	FinalNormName = "model.norm.weight"         // (H)
	LMHeadName    = "lm_head.weight"            // (V, H)
)

// LayerName is the name of a tensor of layer l, for example LayerName(3, "mlp.up_proj.weight").
func LayerName(l int, tensor string) string {
	return "model.layers." + strconv.Itoa(l) + "." + tensor
}

// need is a tensor that the model cannot do without.
type need struct {
	name  string
	shape []int
	keys  string // the keys of config.json that the shape follows from
}

// needs lists the tensors of a model, those of the head only if it is not the embedding.
func needs(c *Config) []need {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	qKeys := fmt.Sprintf("num_attention_heads %d x head_dim %d, hidden_size %d", c.Heads, c.HeadDim, c.Hidden)
	kvKeys := fmt.Sprintf("num_key_value_heads %d x head_dim %d, hidden_size %d", c.KVHeads, c.HeadDim, c.Hidden)
	mlpKeys := fmt.Sprintf("intermediate_size %d, hidden_size %d", c.Intermediate, c.Hidden)
	vocabKeys := fmt.Sprintf("vocab_size %d, hidden_size %d", c.Vocab, c.Hidden)
	normKeys := fmt.Sprintf("hidden_size %d", c.Hidden)
	out := []need{{EmbeddingName, []int{c.Vocab, c.Hidden}, vocabKeys}}
	for l := range c.Layers {
		add := func(tensor, keys string, shape ...int) { out = append(out, need{LayerName(l, tensor), shape, keys}) }
		add("input_layernorm.weight", normKeys, c.Hidden)
		add("self_attn.q_proj.weight", qKeys, q, c.Hidden)
		add("self_attn.k_proj.weight", kvKeys, kv, c.Hidden)
		add("self_attn.v_proj.weight", kvKeys, kv, c.Hidden)
		add("self_attn.o_proj.weight", qKeys, c.Hidden, q)
		if c.QKVBias {
			add("self_attn.q_proj.bias", qKeys, q)
			add("self_attn.k_proj.bias", kvKeys, kv)
			add("self_attn.v_proj.bias", kvKeys, kv)
		}
		add("post_attention_layernorm.weight", normKeys, c.Hidden)
		add("mlp.gate_proj.weight", mlpKeys, c.Intermediate, c.Hidden)
		add("mlp.up_proj.weight", mlpKeys, c.Intermediate, c.Hidden)
		add("mlp.down_proj.weight", mlpKeys, c.Hidden, c.Intermediate)
	}
	out = append(out, need{FinalNormName, []int{c.Hidden}, normKeys})
	if !c.Tied {
		out = append(out, need{LMHeadName, []int{c.Vocab, c.Hidden}, vocabKeys})
	}
	return out
}

// checkNeeds finds every needed tensor and checks its shape and dtype.
func (c *Checkpoint) checkNeeds() error {
	for _, n := range needs(c.Config) {
		f, err := c.weights.find(n.name)
		if err != nil {
			return err
		}
		if f == nil {
			return c.weights.absent(n.name)
		}
		info, _ := f.Info(n.name)
		switch info.DType {
		case "F32", "F16", "BF16":
		default:
			return format.Hint(format.Inputf("%s: tensor %q has dtype %q, want F32, F16 or BF16", f.Path(), n.name, info.DType),
				"convert a quantised checkpoint first")
		}
		if !slices.Equal(info.Shape, n.shape) {
			return format.Inputf("%s: tensor %q has shape %v, config.json calls for %v (%s)", f.Path(), n.name, info.Shape, n.shape, n.keys)
		}
		c.where[n.name] = f
	}
	return nil
}

// checkExtras looks at the tensors that nothing will use: a scale means that weights are not what they seem, a buffer of
// rotary frequencies is derived anyway, the rest is worth a warning.
func (c *Checkpoint) checkExtras() error {
	var extra []string
	for _, s := range c.weights.names {
		f := c.weights.shards[s]
		for _, name := range f.Names() {
			if c.where[name] != nil || ignorable(name) || name == LMHeadName && c.Config.Tied {
				continue
			}
			if strings.Contains(name, "_scale") {
				return format.Hint(format.Inputf("%s: tensor %q is a scale that nothing would apply: the checkpoint is quantised", f.Path(), name),
					"use the F32, F16 or BF16 original")
			}
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		c.warn("%s: %d tensors are not used: %s", c.Dir, len(extra), some(slices.Compact(extra)))
	}
	return nil
}

// ignorable are buffers that old writers saved with the weights.
func ignorable(name string) bool { return strings.HasSuffix(name, "rotary_emb.inv_freq") }
