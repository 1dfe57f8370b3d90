package exporter

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/gguf"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// exporter plans and streams the weights.
type exporter struct {
	ctx      context.Context
	b        *bundle.Bundle
	c        *checkpoint.Config
	g        bundle.Geometry
	progress func(done, total int64)

	resident *tensors.File
	rows     *os.File
	side     *os.File // rows.crc, where records carry no trailer

	entries     []gguf.Entry
	done, total int64 // bytes of tensor data
}

func (e *exporter) open() (err error) {
	if e.resident, err = tensors.Open(e.b.Path(bundle.MemberResident)); err != nil {
		return err
	}
	if e.rows, err = os.Open(e.b.Path(bundle.MemberRows)); err != nil {
		e.close()
		return format.IOf("%w", err)
	}
	if !e.g.Trailer {
		if e.side, err = os.Open(e.b.Path(bundle.MemberRowsCRC)); err != nil {
			e.close()
			return format.IOf("%w", err)
		}
	}
	return nil
}

func (e *exporter) close() {
	_ = e.resident.Close()
	for _, f := range []*os.File{e.rows, e.side} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// arch is llama.cpp's name of the architecture.
func (e *exporter) arch() string {
	if e.c.ModelType == "qwen2" {
		return "qwen2"
	}
	return "llama"
}

// keys are the header's.
func (e *exporter) keys() []gguf.Pair {
	c, a := e.c, e.arch()
	const mostlyF16 = 1
	keys := []gguf.Pair{{Key: "general.architecture", Value: a}, {Key: "general.file_type", Value: uint32(mostlyF16)}}
	add := func(key string, v any) { keys = append(keys, gguf.Pair{Key: a + "." + key, Value: v}) }
	for _, x := range []struct {
		key string
		n   int
	}{
		{"block_count", c.Layers}, {"context_length", c.MaxPositions}, {"embedding_length", c.Hidden}, {"feed_forward_length", c.Intermediate},
		{"attention.head_count", c.Heads}, {"attention.head_count_kv", c.KVHeads}, {"attention.key_length", c.HeadDim}, {"attention.value_length", c.HeadDim},
		{"rope.dimension_count", c.HeadDim}, {"vocab_size", c.Vocab},
	} {
		add(x.key, uint32(x.n))
	}
	add("attention.layer_norm_rms_epsilon", float32(c.RMSEps))
	add("rope.freq_base", float32(c.Rope.Theta))
	if c.Rope.Kind == "linear" {
		add("rope.scaling.type", "linear")
		add("rope.scaling.factor", float32(c.Rope.Factor))
	}
	if c.SlidingWindow > 0 {
		add("attention.sliding_window", uint32(c.SlidingWindow))
	}
	return append(keys, gguf.Pair{Key: "tokenizer.ggml.model", Value: "no_vocab"})
}

// plan lists the tensors in the order of the model and refuses what is missing or misshapen.
func (e *exporter) plan() error {
	c := e.c
	q, kv, h, m := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.Hidden, c.Intermediate
	rotQ, rotKV := 0, 0
	if e.arch() == "llama" { // llama.cpp rotates adjacent pairs there; in qwen2 halves, as Hugging Face does
		rotQ, rotKV = c.Heads, c.KVHeads
	}
	list := []copied{{"model.embed_tokens.weight", "token_embd.weight", 0, []int{c.Vocab, h}}}
	if err := e.copies(list); err != nil {
		return err
	}
	if c.Rope.Kind == "llama3" {
		e.add("rope_freqs.weight", "F32", []int{c.HeadDim / 2}, func(w io.Writer) error { return e.put(w, kernels.F32Bytes(ropeFactors(c))) })
	}
	for l := range c.Layers {
		s, d := fmt.Sprintf("model.layers.%d.", l), fmt.Sprintf("blk.%d.", l)
		list := []copied{
			{s + "input_layernorm.weight", d + "attn_norm.weight", 0, []int{h}},
			{s + "self_attn.q_proj.weight", d + "attn_q.weight", rotQ, []int{q, h}},
			{s + "self_attn.k_proj.weight", d + "attn_k.weight", rotKV, []int{kv, h}},
			{s + "self_attn.v_proj.weight", d + "attn_v.weight", 0, []int{kv, h}},
			{s + "self_attn.o_proj.weight", d + "attn_output.weight", 0, []int{h, q}},
		}
		if c.QKVBias {
			list = append(list,
				copied{s + "self_attn.q_proj.bias", d + "attn_q.bias", rotQ, []int{q}},
				copied{s + "self_attn.k_proj.bias", d + "attn_k.bias", rotKV, []int{kv}},
				copied{s + "self_attn.v_proj.bias", d + "attn_v.bias", 0, []int{kv}})
		}
		list = append(list, copied{s + "post_attention_layernorm.weight", d + "ffn_norm.weight", 0, []int{h}})
		if err := e.copies(list); err != nil {
			return err
		}
		e.add(d+"ffn_gate.weight", "F16", []int{m, h}, func(w io.Writer) error { return e.matrixRows(w, l, 0) })
		e.add(d+"ffn_up.weight", "F16", []int{m, h}, func(w io.Writer) error { return e.matrixRows(w, l, 1) })
		e.add(d+"ffn_down.weight", "F16", []int{h, m}, func(w io.Writer) error { return e.down(w, l) })
	}
	list = []copied{{"model.norm.weight", "output_norm.weight", 0, []int{h}}}
	if !c.Tied {
		list = append(list, copied{"lm_head.weight", "output.weight", 0, []int{c.Vocab, h}})
	}
	return e.copies(list)
}

// copied is a tensor of resident.safetensors that goes over as it is, or with the rows of its heads in another order.
type copied struct {
	src, dst string
	heads    int // > 0: rows go into the order of llama.cpp's rotation, this many heads
	shape    []int
}

func (e *exporter) copies(list []copied) error {
	for _, x := range list {
		kind := "F16"
		if len(x.shape) == 1 {
			kind = "F32"
		}
		info, ok := e.resident.Info(x.src)
		if !ok || info.DType != kind || !slices.Equal(info.Shape, x.shape) {
			return format.Corruptf("%s: tensor %s is missing or not %s %v", e.resident.Path(), x.src, kind, x.shape)
		}
		e.add(x.dst, kind, x.shape, func(w io.Writer) error { return e.copy(w, x) })
	}
	return nil
}

func (e *exporter) add(name, kind string, shape []int, write func(io.Writer) error) {
	_, n, _ := gguf.TypeSize(kind)
	for _, d := range shape {
		n *= d
	}
	e.total += int64(n)
	e.entries = append(e.entries, gguf.Entry{Name: name, Type: kind, Shape: shape, Write: write})
}

// put writes a piece and counts it.
func (e *exporter) put(w io.Writer, b []byte) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	e.done += int64(len(b))
	if e.progress != nil {
		e.progress(e.done, e.total)
	}
	return nil
}

// copy streams a tensor.
func (e *exporter) copy(w io.Writer, x copied) error {
	data, err := e.resident.Bytes(x.src)
	if err != nil {
		return err
	}
	defer e.resident.Release(x.src)
	if x.heads == 0 {
		for len(data) > 0 {
			n := min(len(data), pieceBytes)
			if err := e.put(w, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	}
	rows := x.shape[0]
	row, d := len(data)/rows, rows/x.heads
	for r := range rows {
		at := unpermuted(r, d) * row
		if err := e.put(w, data[at:at+row]); err != nil {
			return err
		}
	}
	return nil
}

// unpermuted is the Hugging Face row that becomes row r of the GGUF tensor, for heads of d rows: the halves of a head are interleaved.
func unpermuted(r, d int) int {
	head, k := r/d*d, r%d
	return head + k%2*(d/2) + k/2
}

// ropeFactors is what a Llama-3 scaling divides each frequency by.
func ropeFactors(c *checkpoint.Config) []float32 {
	f := make([]float32, c.HeadDim/2)
	for i, scaled := range c.InvFreq() {
		f[i] = float32(math.Pow(c.Rope.Theta, -2*float64(i)/float64(c.HeadDim)) / scaled)
	}
	return f
}
