package synthetic

import (
	"encoding/json"
	"math"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
)

// Shape is a model's sizes without its weights.
type Shape struct {
	Name                         string
	Layers, Hidden, Intermediate int
	Heads, KVHeads, HeadDim      int
	Vocab, Positions             int
	RopeTheta                    float64
	KMax                         int // at the paper's 62 % sparsity
}

var shapes = []Shape{
	{"mistral-7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e6, 5500},
	{"llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 5e5, 5500},
	{"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4, 2161},
	{"tiny", 6, 128, 1024, 4, 2, 32, 1024, 512, 1e4, 393}, // to try the commands
}

// Names lists the shapes.
func Names() []string {
	var n []string
	for _, s := range shapes {
		n = append(n, s.Name)
	}
	return n
}

// ShapeOf finds a shape by name.
func ShapeOf(name string) (Shape, error) {
	for _, s := range shapes {
		if s.Name == name {
			return s, nil
		}
	}
	return Shape{}, format.Inputf("no shape is called %q; there are %s", name, strings.Join(Names(), ", "))
}

// The ids of the special tokens.
const (
	unknownID = iota
	beginID
	endID
	firstByteID // 256 of them
)

// configJSON is config.json as a checkpoint of the shape would have it.
func (s Shape) configJSON() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float16",
		"hidden_size": s.Hidden, "intermediate_size": s.Intermediate, "num_hidden_layers": s.Layers,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim, "vocab_size": s.Vocab,
		"max_position_embeddings": s.Positions, "rope_theta": s.RopeTheta, "rms_norm_eps": 1e-5,
		"tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false, "bos_token_id": beginID, "eos_token_id": endID,
	}, "", "  ")
}

func (s Shape) config() (*checkpoint.Config, []byte, error) {
	data, err := s.configJSON()
	if err != nil {
		return nil, nil, err
	}
	c, err := checkpoint.ParseConfig(bundle.MemberConfig, data)
	if err == nil && (s.Hidden%4 != 0 || s.Intermediate > maxNeurons || s.KMax < 1 || s.KMax > s.Intermediate) {
		err = format.Inputf("shape %s: hidden size %d, %d neurons, K_max %d", s.Name, s.Hidden, s.Intermediate, s.KMax)
	}
	return c, data, err
}

// centroids is K of every table.
func (s Shape) centroids() int { return min(512, s.Intermediate) }

// predictorDim is the width T of the predictor.
func (s Shape) predictorDim() int { return min(512, s.Hidden) }

// centroidDensity is the share of neurons in a mask that makes the intersection of two independent ones K_max.
func (s Shape) centroidDensity() float64 {
	return math.Sqrt(float64(s.KMax) / float64(s.Intermediate))
}
