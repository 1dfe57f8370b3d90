package model_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

// reference is the slow, obvious forward pass in float64, straight from the formulas, on tensors as stored.
type reference struct {
	c       *checkpoint.Config
	w       map[string][]float64
	invFreq []float64
	halfKV  bool // round keys and values to float16, as the cache does
}

func newReference(t *testing.T, name string, halves bool) *reference {
	t.Helper()
	c, err := checkpoint.Open(filepath.Join("testdata", "arch", name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := &reference{c: c.Config, w: map[string][]float64{}, invFreq: goldenInvFreq(t, c)}
	get := func(name string, matrix bool) {
		info, b, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float64, 0, len(b)/2)
		for i := 0; i < len(b); {
			var f float32
			switch info.DType {
			case "F32":
				f = math.Float32frombits(uint32(b[i]) | uint32(b[i+1])<<8 | uint32(b[i+2])<<16 | uint32(b[i+3])<<24)
				i += 4
			case "BF16":
				f = math.Float32frombits(uint32(b[i])<<16 | uint32(b[i+1])<<24)
				i += 2
			case "F16":
				f = kernels.F16Value(uint16(b[i]) | uint16(b[i+1])<<8)
				i += 2
			}
			if halves && matrix {
				f = kernels.F16Value(kernels.F16Bits(f))
			}
			v = append(v, float64(f))
		}
		r.w[name] = v
	}
	get("model.embed_tokens.weight", true)
	get("model.norm.weight", false)
	if c.Config.Tied {
		r.w["head"] = r.w["model.embed_tokens.weight"]
	} else {
		get("lm_head.weight", true)
		r.w["head"] = r.w["lm_head.weight"]
	}
	for l := range c.Config.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		for _, n := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
			get(p+n+".weight", true)
		}
		get(p+"input_layernorm.weight", false)
		get(p+"post_attention_layernorm.weight", false)
		if c.Config.QKVBias {
			for _, n := range []string{"q", "k", "v"} {
				get(p+"self_attn."+n+"_proj.bias", false)
			}
		}
	}
	return r
}

// goldenInvFreq rounds the rotary frequencies to the checkpoint's type, as the script that made the goldens did when it
// cast the whole model, buffers included, to that type.
func goldenInvFreq(t *testing.T, c *checkpoint.Checkpoint) []float64 {
	t.Helper()
	info, _, err := c.Tensor("model.layers.0.self_attn.q_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	f := c.Config.InvFreq()
	for i, v := range f {
		switch info.DType {
		case "F16":
			f[i] = float64(kernels.F16Value(kernels.F16Bits(float32(v))))
		case "BF16":
			b := math.Float32bits(float32(v))
			f[i] = float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
		}
	}
	return f
}

// matmul is x (T, n) · Wᵀ, W (m, n), plus a bias.
func matmul(x [][]float64, w, bias []float64) [][]float64 {
	out := make([][]float64, len(x))
	for t, v := range x {
		out[t] = make([]float64, len(w)/len(v))
		for o := range out[t] {
			for i, a := range v {
				out[t][o] += a * w[o*len(v)+i]
			}
			if bias != nil {
				out[t][o] += bias[o]
			}
		}
	}
	return out
}

func (r *reference) norm(x [][]float64, w []float64) [][]float64 {
	out := make([][]float64, len(x))
	for t, v := range x {
		sum := 0.0
		for _, a := range v {
			sum += a * a
		}
		s := 1 / math.Sqrt(sum/float64(len(v))+r.c.RMSEps)
		for i, a := range v {
			out[t] = append(out[t], a*s*w[i])
		}
	}
	return out
}

func (r *reference) rope(x [][]float64) {
	d := r.c.HeadDim
	for pos, v := range x {
		for h := 0; h < len(v); h += d {
			for i := range d / 2 {
				sin, cos := math.Sincos(float64(pos) * r.invFreq[i])
				a, b := v[h+i], v[h+i+d/2]
				v[h+i], v[h+i+d/2] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
}

// forward returns the logits (T, vocab) of ids.
func (r *reference) forward(ids []int32) []float32 {
	c := r.c
	var x [][]float64
	for _, id := range ids {
		x = append(x, append([]float64{}, r.w["model.embed_tokens.weight"][int(id)*c.Hidden:(int(id)+1)*c.Hidden]...))
	}
	for l := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		in := r.norm(x, r.w[p+"input_layernorm.weight"])
		proj := func(n string) [][]float64 {
			return matmul(in, r.w[p+"self_attn."+n+"_proj.weight"], r.w[p+"self_attn."+n+"_proj.bias"])
		}
		q, k, v := proj("q"), proj("k"), proj("v")
		r.rope(q)
		r.rope(k)
		if r.halfKV {
			roundHalf(k)
			roundHalf(v)
		}
		att := make([][]float64, len(ids))
		for t := range ids {
			for h := range c.Heads {
				kv := h / (c.Heads / c.KVHeads) * c.HeadDim
				from := 0
				if c.SlidingWindow > 0 {
					from = max(0, t+1-c.SlidingWindow)
				}
				var s []float64
				top := math.Inf(-1)
				for u := from; u <= t; u++ {
					dot := 0.0
					for i := range c.HeadDim {
						dot += q[t][h*c.HeadDim+i] * k[u][kv+i]
					}
					s = append(s, dot/math.Sqrt(float64(c.HeadDim)))
					top = max(top, s[len(s)-1])
				}
				sum := 0.0
				for i := range s {
					s[i] = math.Exp(s[i] - top)
					sum += s[i]
				}
				for i := range c.HeadDim {
					o := 0.0
					for j, w := range s {
						o += w / sum * v[from+j][kv+i]
					}
					att[t] = append(att[t], o)
				}
			}
		}
		add(x, matmul(att, r.w[p+"self_attn.o_proj.weight"], nil))
		in = r.norm(x, r.w[p+"post_attention_layernorm.weight"])
		g, u := matmul(in, r.w[p+"mlp.gate_proj.weight"], nil), matmul(in, r.w[p+"mlp.up_proj.weight"], nil)
		for t := range g {
			for i, a := range g[t] {
				g[t][i] = a / (1 + math.Exp(-a)) * u[t][i]
			}
		}
		add(x, matmul(g, r.w[p+"mlp.down_proj.weight"], nil))
	}
	var out []float32
	for _, row := range matmul(r.norm(x, r.w["model.norm.weight"]), r.w["head"], nil) {
		for _, v := range row {
			out = append(out, float32(v))
		}
	}
	return out
}

func roundHalf(x [][]float64) {
	for _, v := range x {
		for i, a := range v {
			v[i] = float64(kernels.F16Value(kernels.F16Bits(float32(a))))
		}
	}
}

func add(x, y [][]float64) {
	for t := range x {
		for i := range x[t] {
			x[t][i] += y[t][i]
		}
	}
}

// TestReference holds the float64 reference against the goldens, so that it may stand in for them below.
func TestReference(t *testing.T) {
	for _, name := range architectures {
		_, _, want := loadArch(t, name)
		worst := nearBy(t, name, newReference(t, name, false).forward(want.ids), want.stored, largest(want.stored), 1e-4)
		t.Logf("%s: off by %.2g of the largest logit", name, worst)
	}
}
