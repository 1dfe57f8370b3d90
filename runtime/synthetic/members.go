package synthetic

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// Streams of random numbers: one per tensor, so that no tensor depends on the order in which they are written.
const (
	streamRows     = 0       // + layer
	streamResident = 1 << 20 // + tensor
	streamMasks    = 2 << 20
	streamNetwork  = 3 << 20
	streamTrace    = 4 << 20 // + layer
)

// tokenizerJSON is a byte-level tokenizer with the shape's whole vocabulary: three specials, the 256 bytes, and names for
// the rest, which no text encodes to.
func (s Shape) tokenizerJSON() ([]byte, error) {
	vocab := make(map[string]int, s.Vocab)
	special := []string{"<unk>", "<s>", "</s>"}
	var added []map[string]any
	for id, t := range special {
		vocab[t] = id
		added = append(added, map[string]any{"id": id, "content": t, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	extra := rune(256)
	for b := range 256 { // the printable bytes stand for themselves, the others for the code points from 256 on
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = extra
			extra++
		}
		vocab[string(r)] = firstByteID + b
	}
	for id := firstByteID + 256; id < s.Vocab; id++ {
		vocab[fmt.Sprintf("<noise%d>", id)] = id
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil, "pre_tokenizer": level,
		"post_processor": nil, "decoder": level,
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []any{}},
	})
}

// randomHalves is a float16 tensor of random values with about this root mean square; rows·cols is a multiple of 4.
func randomHalves(name string, seed, stream uint64, rms float64, rows, cols int) tensors.Entry {
	return tensors.Entry{Name: name, DType: "F16", Shape: []int{rows, cols}, Write: func(w io.Writer) error {
		src := newSource(seed, stream)
		buf := make([]uint64, 32<<10)
		for left := rows * cols / 4; left > 0; {
			b := buf[:min(left, len(buf))]
			src.halves(b, rms)
			if _, err := w.Write(kernels.U64Bytes(b)); err != nil {
				return err
			}
			left -= len(b)
		}
		return nil
	}}
}

func ones(name string, n int) tensors.Entry {
	return tensors.F32Entry(name, []int{n}, slices.Repeat([]float32{1}, n))
}

// residentEntries are the tensors of resident.safetensors. With inputs of unit variance every product has about unit
// variance, so activations stay finite however deep the model.
func residentEntries(c *checkpoint.Config, seed uint64) []tensors.Entry {
	h, q, kv := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	in := 1 / math.Sqrt(float64(h))
	stream := uint64(streamResident)
	random := func(name string, rms float64, rows, cols int) tensors.Entry {
		stream++
		return randomHalves(name, seed, stream, rms, rows, cols)
	}
	es := []tensors.Entry{
		random("model.embed_tokens.weight", 0.5, c.Vocab, h),
		random("lm_head.weight", in, c.Vocab, h),
		ones("model.norm.weight", h),
	}
	for l := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		es = append(es,
			ones(p+"input_layernorm.weight", h), ones(p+"post_attention_layernorm.weight", h),
			random(p+"self_attn.q_proj.weight", in, q, h), random(p+"self_attn.k_proj.weight", in, kv, h),
			random(p+"self_attn.v_proj.weight", in, kv, h), random(p+"self_attn.o_proj.weight", 1/math.Sqrt(float64(q)), h, q))
	}
	return es
}

// centroidEntries are the tensors of the centroids member: masks at the density whose pairwise intersections have about
// K_max neurons, and random frequencies.
func centroidEntries(s Shape, seed uint64) []tensors.Entry {
	m, k, words := s.Intermediate, s.centroids(), predictor.Words(s.Intermediate)
	stream := uint64(streamMasks)
	masks := func(name string, density float64) tensors.Entry {
		stream++
		id := stream
		return tensors.Entry{Name: name, DType: "U64", Shape: []int{k, words}, Write: func(w io.Writer) error {
			src := newSource(seed, id)
			row := make([]uint64, words)
			for range k {
				src.mask(row, m, density)
				if _, err := w.Write(kernels.U64Bytes(row)); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	units := func(name string) tensors.Entry {
		stream++
		src := newSource(seed, stream)
		v := make([]float32, m)
		for i := range v {
			v[i] = float32(src.unit())
		}
		return tensors.F32Entry(name, []int{m}, v)
	}
	es := []tensors.Entry{
		tensors.F32Entry(predictor.ThresholdName, []int{s.Layers, 2}, slices.Repeat([]float32{0.25}, 2*s.Layers)),
		masks(predictor.Layer0Name, 0.4),
	}
	for l := 1; l < s.Layers; l++ {
		for p := range predictor.Projections {
			es = append(es, masks(predictor.TableName(p, l), s.centroidDensity()), units(predictor.FreqName(p, l)))
		}
		es = append(es, units(predictor.StaticName(l)), tensors.I32Entry(predictor.PinsName(l), []int{0}, nil))
	}
	return es
}

// predictorEntries are the tensors of predictor.safetensors.
func predictorEntries(s Shape, seed uint64) []tensors.Entry {
	t, k, inner := s.predictorDim(), s.centroids(), predictor.Expand*s.predictorDim()
	stream := uint64(streamNetwork)
	random := func(name string, fan, rows, cols int) tensors.Entry {
		stream++
		return randomHalves(name, seed, stream, 1/math.Sqrt(float64(fan)), rows, cols)
	}
	var es []tensors.Entry
	for j := range predictor.FeatureNames {
		es = append(es, random(predictor.ProjName(j), s.Hidden, t, s.Hidden))
	}
	es = append(es, random(predictor.Gate0Name, 1, k, t), ones(predictor.FinalName, t))
	for i := range predictor.Blocks {
		es = append(es, ones(predictor.BlockNormName(i), t), random(predictor.BlockW1Name(i), t, inner, t), random(predictor.BlockW2Name(i), inner, t, inner))
	}
	for l := 1; l < s.Layers; l++ {
		for p := range predictor.Projections {
			es = append(es, random(predictor.HeadName(p, l), t, k, t), tensors.F32Entry(predictor.BiasName(p, l), []int{k}, make([]float32, k)))
		}
	}
	return es
}
