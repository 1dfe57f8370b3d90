package capture

import (
	"encoding/binary"
	"math"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

// A slow dense forward pass in float64, written from the architecture's definition for the tiny checkpoint: default
// rotary embedding, no biases, float16 weights.
type reference struct {
	t   *testing.T
	c   *checkpoint.Checkpoint
	cfg *checkpoint.Config
}

// matrix reads a tensor row by row.
func (r *reference) matrix(name string, cols int) [][]float64 {
	info, b, err := r.c.Tensor(name)
	if err != nil {
		r.t.Fatal(err)
	}
	if info.DType != "F16" {
		r.t.Fatalf("tensor %s is %s", name, info.DType)
	}
	out := make([][]float64, len(b)/2/cols)
	for i := range out {
		out[i] = make([]float64, cols)
		for j := range out[i] {
			out[i][j] = float64(kernels.F16Value(binary.LittleEndian.Uint16(b[2*(i*cols+j):])))
		}
	}
	return out
}

func norm(x, w []float64, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+eps) * w[i]
	}
	return out
}

func times(w [][]float64, x []float64) []float64 {
	out := make([]float64, len(w))
	for i, row := range w {
		for j, v := range x {
			out[i] += row[j] * v
		}
	}
	return out
}

// seen is what a layer does to one token.
type seen struct {
	embed, attn, mlpIn, resid []float64 // of layer 0 they are the features
	gate, up, importance      []float64 // magnitudes
}

// run gives, per layer, what every token of a window sees.
func (r *reference) run(ids []int32) [][]seen {
	cfg := r.cfg
	h, d := cfg.Hidden, cfg.HeadDim
	embed := r.matrix("model.embed_tokens.weight", h)
	x := make([][]float64, len(ids))
	for i, id := range ids {
		x[i] = append([]float64(nil), embed[id]...)
	}
	var out [][]seen
	for l := range cfg.Layers {
		p := "model.layers." + string(rune('0'+l)) + "."
		q, k, v := r.matrix(p+"self_attn.q_proj.weight", h), r.matrix(p+"self_attn.k_proj.weight", h), r.matrix(p+"self_attn.v_proj.weight", h)
		o := r.matrix(p+"self_attn.o_proj.weight", cfg.Heads*d)
		gate, up, down := r.matrix(p+"mlp.gate_proj.weight", h), r.matrix(p+"mlp.up_proj.weight", h), r.matrix(p+"mlp.down_proj.weight", cfg.Intermediate)
		in, post := r.matrix(p+"input_layernorm.weight", h)[0], r.matrix(p+"post_attention_layernorm.weight", h)[0]
		layer := make([]seen, len(ids))
		var keys, values [][]float64
		for i := range ids {
			n := norm(x[i], in, cfg.RMSEps)
			qs, ks := times(q, n), times(k, n)
			rotate(qs, i, d, cfg.Rope.Theta)
			rotate(ks, i, d, cfg.Rope.Theta)
			keys, values = append(keys, ks), append(values, times(v, n))
			att := make([]float64, cfg.Heads*d)
			for head := range cfg.Heads {
				kv := head / (cfg.Heads / cfg.KVHeads)
				w, z := make([]float64, i+1), 0.0
				for j := range w {
					for e := range d {
						w[j] += qs[head*d+e] * keys[j][kv*d+e]
					}
					w[j] = math.Exp(w[j] / math.Sqrt(float64(d)))
					z += w[j]
				}
				for j := range w {
					for e := range d {
						att[head*d+e] += w[j] / z * values[j][kv*d+e]
					}
				}
			}
			s := &layer[i]
			s.embed = append([]float64(nil), x[i]...)
			s.attn = times(o, att)
			for e, v := range s.attn {
				x[i][e] += v
			}
			s.mlpIn = norm(x[i], post, cfg.RMSEps)
			g, u := times(gate, s.mlpIn), times(up, s.mlpIn)
			s.gate, s.up, s.importance = make([]float64, len(g)), make([]float64, len(g)), make([]float64, len(g))
			for n := range g {
				a := g[n] / (1 + math.Exp(-g[n]))
				s.gate[n], s.up[n] = math.Abs(a), math.Abs(u[n])
				column := 0.0
				for e := range h {
					x[i][e] += a * u[n] * down[e][n]
					column += down[e][n] * down[e][n]
				}
				s.importance[n] = math.Abs(a*u[n]) * math.Sqrt(column)
			}
			s.resid = append([]float64(nil), x[i]...)
		}
		out = append(out, layer)
	}
	return out
}

func rotate(x []float64, pos, d int, theta float64) {
	for head := 0; head < len(x); head += d {
		for i := range d / 2 {
			sin, cos := math.Sincos(float64(pos) * math.Pow(theta, -2*float64(i)/float64(d)))
			a, b := x[head+i], x[head+i+d/2]
			x[head+i], x[head+i+d/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
}
