package importer

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// pieceValues is how many values are converted at once, unless one row is longer.
const pieceValues = 256 << 10

// converter plans and streams the weights.
type converter struct {
	ctx      context.Context
	g        *gguf.File
	cfg      *config
	report   *Report
	progress func(done, total int64)

	entries []tensors.Entry
	total   int64 // bytes of tensor data to write
	err     error // the first refusal while converting, without what writers wrap around it
}

// job is one tensor: where it comes from and how its rows are ordered.
type job struct {
	t     gguf.Tensor
	half  bool // becomes float16
	heads int  // > 0: rows come in the order of llama.cpp's rotation, this many heads
}

// plan lists the tensors in the order of the model and refuses what is missing, misshapen, of an unreadable type, or left over.
func (c *converter) plan() error {
	cf := c.cfg
	q, kv, h, ff := cf.heads*cf.headDim, cf.kvHeads*cf.headDim, cf.hidden, cf.intermediate
	rotQ, rotKV := 0, 0
	if cf.arch == "llama" { // the converter to GGUF permutes Q and K for ggml's adjacent-pair rotation; for qwen2 it does not
		rotQ, rotKV = cf.heads, cf.kvHeads
	}
	seen := map[string]bool{}
	add := func(src, dst string, heads int, shape ...int) error {
		t, ok := c.g.Find(src)
		if !ok {
			return format.Inputf("%s: tensor %q is missing", c.g.Path(), src)
		}
		if !slices.Equal(t.Shape, shape) {
			return format.Inputf("%s: tensor %q: shape %v, want %v", c.g.Path(), src, t.Shape, shape)
		}
		if !gguf.Readable(t.Type) {
			return format.Inputf("%s: tensor %q: type %s is not supported", c.g.Path(), src, t.Type)
		}
		seen[src] = true
		j := job{t: t, half: len(shape) == 2, heads: heads}
		e := tensors.Entry{Name: dst, DType: "F32", Shape: shape, Write: func(w io.Writer) error { return c.write(w, j) }}
		size := int64(4)
		if j.half {
			e.DType, size = "F16", 2
		}
		for _, n := range shape {
			size *= int64(n)
		}
		c.total += size
		c.entries = append(c.entries, e)
		return nil
	}
	type row struct {
		src, dst string
		heads    int
		shape    []int
	}
	list := []row{{"token_embd.weight", "model.embed_tokens.weight", 0, []int{cf.vocab, h}}}
	for l := range cf.layers {
		b, d := fmt.Sprintf("blk.%d.", l), fmt.Sprintf("model.layers.%d.", l)
		list = append(list,
			row{b + "attn_norm.weight", d + "input_layernorm.weight", 0, []int{h}},
			row{b + "attn_q.weight", d + "self_attn.q_proj.weight", rotQ, []int{q, h}},
			row{b + "attn_k.weight", d + "self_attn.k_proj.weight", rotKV, []int{kv, h}},
			row{b + "attn_v.weight", d + "self_attn.v_proj.weight", 0, []int{kv, h}},
			row{b + "attn_output.weight", d + "self_attn.o_proj.weight", 0, []int{h, q}})
		if cf.arch == "qwen2" {
			list = append(list,
				row{b + "attn_q.bias", d + "self_attn.q_proj.bias", 0, []int{q}},
				row{b + "attn_k.bias", d + "self_attn.k_proj.bias", 0, []int{kv}},
				row{b + "attn_v.bias", d + "self_attn.v_proj.bias", 0, []int{kv}})
		}
		list = append(list,
			row{b + "ffn_norm.weight", d + "post_attention_layernorm.weight", 0, []int{h}},
			row{b + "ffn_gate.weight", d + "mlp.gate_proj.weight", 0, []int{ff, h}},
			row{b + "ffn_up.weight", d + "mlp.up_proj.weight", 0, []int{ff, h}},
			row{b + "ffn_down.weight", d + "mlp.down_proj.weight", 0, []int{h, ff}})
	}
	list = append(list, row{"output_norm.weight", "model.norm.weight", 0, []int{h}})
	if !cf.tied {
		list = append(list, row{"output.weight", "lm_head.weight", 0, []int{cf.vocab, h}})
	}
	for _, r := range list {
		if err := add(r.src, r.dst, r.heads, r.shape...); err != nil {
			return err
		}
	}
	for _, t := range c.g.Tensors {
		switch {
		case seen[t.Name]:
		case t.Name == ropeFreqs, strings.HasSuffix(t.Name, ".attn_rot_embd.weight"), strings.HasSuffix(t.Name, ".rope_freqs.weight"):
			// Tables that repeat the configuration; readRope has taken what the first one says.
			c.report.Unused = append(c.report.Unused, t.Name)
		default:
			return format.Inputf("%s: tensor %q is not part of a %s model as it is supported here", c.g.Path(), t.Name, cf.arch)
		}
	}
	return nil
}

// own returns the converter's refusal rather than what a writer made of it.
func (c *converter) own(err error) error {
	if c.err != nil {
		return c.err
	}
	return err
}

// write streams one tensor.
func (c *converter) write(w io.Writer, j job) error {
	c.report.Types[j.t.Type]++
	c.report.Tensors++
	c.report.BytesRead += j.t.Size
	rows, cols := j.t.Rows(), j.t.Cols()
	step := max(1, pieceValues/cols)
	vals, bits := make([]float32, min(step, rows)*cols), make([]uint16, min(step, rows)*cols)
	back := make([]float32, len(vals))
	for lo := 0; lo < rows; lo += step {
		hi := min(lo+step, rows)
		x, b := vals[:(hi-lo)*cols], bits[:(hi-lo)*cols]
		if c.err = c.ctx.Err(); c.err != nil {
			return c.err
		}
		if c.err = c.read(j, lo, hi, x); c.err != nil {
			return c.err
		}
		var out []byte
		if j.half {
			kernels.F32ToF16(b, x)
			kernels.F16ToF32(back[:len(x)], b)
			if c.err = c.count(j, lo, x, b, back); c.err != nil {
				return c.err
			}
			out = kernels.U16Bytes(b)
		} else {
			if c.err = c.finite(j, lo, x); c.err != nil {
				return c.err
			}
			out = kernels.F32Bytes(x)
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		c.report.BytesWritten += int64(len(out))
		if c.progress != nil {
			c.progress(c.report.BytesWritten, c.total)
		}
	}
	return nil
}

// read fetches output rows [lo, hi). In a permuted tensor, row j·d/2 + i of a head of d rows lies at 2i + j.
func (c *converter) read(j job, lo, hi int, dst []float32) error {
	if j.heads == 0 {
		return c.g.ReadF32(j.t, lo, hi, dst)
	}
	cols, d := j.t.Cols(), j.t.Rows()/j.heads
	for r := lo; r < hi; r++ {
		src := permuted(r, d)
		if err := c.g.ReadF32(j.t, src, src+1, dst[(r-lo)*cols:(r-lo+1)*cols]); err != nil {
			return err
		}
	}
	return nil
}

// permuted is the row of the GGUF tensor that holds row r of the Hugging Face one, for heads of d rows.
func permuted(r, d int) int {
	head, k := r/d*d, r%d
	return head + k%(d/2)*2 + k/(d/2)
}

// count refuses what float16 cannot hold and counts what it holds only roughly. back is what the bits mean.
func (c *converter) count(j job, lo int, x []float32, bits []uint16, back []float32) error {
	c.report.Values += int64(len(x))
	for i, b := range bits {
		if b&0x7c00 == 0x7c00 {
			cols := j.t.Cols()
			return c.unfit(j, lo+i/cols, i%cols, x[i])
		}
		if back[i] != x[i] {
			c.report.Rounded++
			if b&0x7fff == 0 {
				c.report.Underflow++
			}
		}
	}
	return nil
}

func (c *converter) finite(j job, lo int, x []float32) error {
	for i, v := range x {
		if v-v != 0 { // NaN or infinite
			cols := j.t.Cols()
			return c.unfit(j, lo+i/cols, i%cols, v)
		}
	}
	return nil
}

// unfit names the row of the GGUF tensor.
func (c *converter) unfit(j job, row, col int, v float32) error {
	if j.heads > 0 {
		row = permuted(row, j.t.Rows()/j.heads)
	}
	where := fmt.Sprintf("%s: tensor %q: row %d, column %d", c.g.Path(), j.t.Name, row, col)
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return format.Inputf("%s: the value is %v", where, v)
	}
	return format.Inputf("%s: the value %g is beyond float16, which ends at 65504", where, v)
}
