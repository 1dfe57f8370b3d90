package model_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// golden is what Hugging Face transformers computed in float32 on the weights as stored (testdata/make_arch.py).
type golden struct {
	ids      []int32
	logits   []float32   // (T, vocab)
	hidden0  []float32   // (T, H) after layer 0
	gate, up [][]float32 // per layer (T, M)
}

// tolerance is the largest deviation allowed, relative to the largest value of the reference. Weights of a float32
// checkpoint are rounded to float16 here, keys and values always.
const tolerance = 2e-3

var architectures = []string{"llama2", "mistral", "llama3", "llama3-new-keys", "qwen2", "smollm2", "mistral-window"}

func TestGoldenBatch(t *testing.T) {
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			m, rows, want := loadArch(t, name)
			for _, size := range []int{len(want.ids), 7} {
				logits, hidden := make([]float32, 0), make([]float32, 0)
				kv := model.NewKV(m.Config, m.Config.Layers, len(want.ids))
				b := m.NewBatch(size)
				h, mlp := m.Config.Hidden, m.Config.Intermediate
				for pos := 0; pos < len(want.ids); pos += size {
					n := min(size, len(want.ids)-pos)
					x := make([]float32, n*h)
					m.EmbedTokens(x, want.ids[pos:pos+n])
					for l := range m.Layers {
						b.Attention(m.Layers[l], x, n, kv.Layers[l], pos)
						b.MLP(m.Layers[l], rows[l], x, n, func(lo, hi int, gate, up []float32) {
							for i := range n {
								at := (pos+i)*mlp + lo
								near(t, fmt.Sprintf("gate.%d token %d", l, pos+i), gate[i*(hi-lo):(i+1)*(hi-lo)], want.gate[l][at:at+hi-lo], largest(want.gate[l]))
								near(t, fmt.Sprintf("up.%d token %d", l, pos+i), up[i*(hi-lo):(i+1)*(hi-lo)], want.up[l][at:at+hi-lo], largest(want.up[l]))
							}
						})
						if l == 0 {
							hidden = append(hidden, x...)
						}
					}
					out := make([]float32, n*m.Config.Vocab)
					b.Logits(out, x, 0, n)
					logits = append(logits, out...)
				}
				near(t, "hidden.0", hidden, want.hidden0, largest(want.hidden0))
				worst := near(t, "logits", logits, want.logits, largest(want.logits))
				t.Logf("batches of %d: largest deviation of a logit %.2g of the largest logit", size, worst)
			}
		})
	}
}

func TestGoldenStep(t *testing.T) {
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			m, rows, want := loadArch(t, name)
			kv := model.NewKV(m.Config, m.Config.Layers, len(want.ids))
			s := m.NewStep(len(want.ids))
			off := make([]int, m.Config.Intermediate)
			for i := range off {
				off[i] = i * rows[0].Stride
			}
			x, logits := make([]float32, m.Config.Hidden), make([]float32, m.Config.Vocab)
			worst := 0.0
			for pos, id := range want.ids {
				m.EmbedTokens(x, []int32{id})
				for l := range m.Layers {
					s.Attention(m.Layers[l], x, kv.Layers[l], pos)
					s.BeginMLP(m.Layers[l], x)
					half := len(off) / 3
					s.MLPRows(rows[l].Mem, off[:half])
					s.MLPRows(rows[l].Mem, off[half:])
					s.EndMLP(x)
				}
				s.Logits(logits, x)
				worst = max(worst, near(t, fmt.Sprintf("logits of token %d", pos), logits, want.logits[pos*len(logits):(pos+1)*len(logits)], largest(want.logits)))
			}
			t.Logf("largest deviation of a logit %.2g of the largest logit", worst)
		})
	}
}

// TestRowsDoNotDependOnBatch pins that a token's result is the same bits in any batch and on any number of threads.
func TestRowsDoNotDependOnBatch(t *testing.T) {
	for _, name := range []string{"llama3", "mistral-window"} {
		m, rows, want := loadArch(t, name)
		forward := func(size, threads int) []float32 {
			m.Pool = kernels.NewPool(threads)
			defer m.Pool.Close()
			b, kv := m.NewBatch(size), model.NewKV(m.Config, m.Config.Layers, len(want.ids))
			var all []float32
			for pos := 0; pos < len(want.ids); pos += size {
				n := min(size, len(want.ids)-pos)
				x := make([]float32, n*m.Config.Hidden)
				m.EmbedTokens(x, want.ids[pos:pos+n])
				for l := range m.Layers {
					b.Attention(m.Layers[l], x, n, kv.Layers[l], pos)
					b.MLP(m.Layers[l], rows[l], x, n, nil)
				}
				all = append(all, x...)
			}
			return all
		}
		ref := forward(96, 1)
		for _, c := range [][2]int{{1, 1}, {7, 1}, {64, 1}, {96, 2}, {13, 3}} {
			got := forward(c[0], c[1])
			for i := range ref {
				if math.Float32bits(got[i]) != math.Float32bits(ref[i]) {
					t.Fatalf("%s: batch %d on %d threads: value %d is %v, want %v", name, c[0], c[1], i, got[i], ref[i])
				}
			}
		}
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	m, rows, want := loadArch(t, "mistral")
	kv := model.NewKV(m.Config, m.Config.Layers, 96)
	s := m.NewStep(96)
	off := make([]int, m.Config.Intermediate)
	for i := range off {
		off[i] = i * rows[0].Stride
	}
	x, logits := make([]float32, m.Config.Hidden), make([]float32, m.Config.Vocab)
	pos := 0
	ids := []int32{0}
	if n := testing.AllocsPerRun(50, func() {
		ids[0] = want.ids[pos]
		m.EmbedTokens(x, ids)
		for l := range m.Layers {
			s.Attention(m.Layers[l], x, kv.Layers[l], pos)
			s.BeginMLP(m.Layers[l], x)
			s.MLPRows(rows[l].Mem, off)
			s.EndMLP(x)
		}
		s.Logits(logits, x)
		pos++
	}); n != 0 {
		t.Errorf("a token allocates %v times", n)
	}
}

func loadArch(t *testing.T, name string) (*model.Model, []model.Rows, golden) {
	t.Helper()
	dir := filepath.Join("testdata", "arch", name)
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	src := &model.CheckpointSource{C: c}
	pool := kernels.NewPool(2)
	t.Cleanup(pool.Close)
	m := model.New(c.Config, pool)
	if err := m.Load(src, nil, true); err != nil {
		t.Fatal(err)
	}
	rows := make([]model.Rows, c.Config.Layers)
	for l := range rows {
		if rows[l], err = model.LoadRows(c.Config, src, l, nil); err != nil {
			t.Fatal(err)
		}
	}
	f, err := tensors.Open(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	floats := func(name string) []float32 {
		v, err := f.F32(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	g := golden{logits: floats("logits"), hidden0: floats("hidden.0")}
	for l := range c.Config.Layers {
		g.gate = append(g.gate, floats(fmt.Sprintf("gate.%d", l)))
		g.up = append(g.up, floats(fmt.Sprintf("up.%d", l)))
	}
	raw, err := f.Bytes("input_ids")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(raw); i += 8 {
		g.ids = append(g.ids, int32(raw[i])|int32(raw[i+1])<<8)
	}
	return m, rows, g
}

func largest(v []float32) float64 {
	m := 0.0
	for _, f := range v {
		m = max(m, math.Abs(float64(f)))
	}
	return m
}

// near fails when got is further than tolerance·scale from want and returns the largest deviation relative to scale.
func near(t *testing.T, what string, got, want []float32, scale float64) float64 {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, 0
	for i := range got {
		d := math.Abs(float64(got[i])-float64(want[i])) / scale
		if d > worst || math.IsNaN(d) {
			worst, at = d, i
		}
	}
	if !(worst <= tolerance) {
		t.Fatalf("%s: value %d is %v, want %v: off by %.2g of the largest", what, at, got[at], want[at], worst)
	}
	return worst
}
