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
	logits   []float32   // (T, vocab) on the weights as loaded
	stored   []float32   // (T, vocab) on the weights as stored; the same unless those are float32
	hidden0  []float32   // (T, H) after layer 0
	gate, up [][]float32 // per layer (T, M)
}

// tolerance is the largest deviation allowed, relative to the largest value of the reference.
const tolerance = 2e-3

var architectures = []string{"llama2", "mistral", "llama3", "llama3-new-keys", "qwen2", "smollm2", "mistral-window"}

func TestGoldenBatch(t *testing.T) {
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			m, rows, want := loadArch(t, name)
			for _, size := range []int{len(want.ids), 7} {
				logits, hidden := make([]float32, 0), make([]float32, 0)
				kv := model.NewKV(m.Config, m.Config.Layers, len(want.ids), true)
				b := m.NewBatch(size)
				h, mlp := m.Config.Hidden, m.Config.Intermediate
				for pos := 0; pos < len(want.ids); pos += size {
					n := min(size, len(want.ids)-pos)
					x := make([]float32, n*h)
					m.EmbedTokens(x, want.ids[pos:pos+n])
					for l := range m.Layers {
						b.Attention(m.Layers[l], x, n, kv.Layers[l], pos)
						b.MLP(m.Layers[l], rows[l], x, n, func(lo, hi int, gate, up []float32) {
							if want.gate == nil {
								return
							}
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
				if want.hidden0 != nil {
					near(t, "hidden.0", hidden, want.hidden0, largest(want.hidden0))
				}
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
			worst := near(t, "logits", stepLogits(m, rows, want.ids, true), want.logits, largest(want.logits))
			t.Logf("largest deviation of a logit %.2g of the largest logit", worst)
		})
	}
}

// TestHalfCache holds the float16 cache against the reference with rounded keys and values, in both forward passes.
func TestHalfCache(t *testing.T) {
	for _, name := range []string{"llama2", "llama3", "mistral-window"} {
		m, rows, want := loadArch(t, name)
		r := newReference(t, name, false)
		r.halfKV = true
		ref := r.forward(want.ids)
		t.Logf("%s: rounding the cache to float16 moves a logit by at most %.2g of the largest", name, nearBy(t, name, ref, want.stored, largest(ref), 5e-2))
		near(t, name+" in a batch", batchLogits(m, rows, want.ids, false), ref, largest(ref))
		near(t, name+" step by step", stepLogits(m, rows, want.ids, false), ref, largest(ref))
	}
}

func batchLogits(m *model.Model, rows []model.Rows, ids []int32, full bool) []float32 {
	n, kv, b := len(ids), model.NewKV(m.Config, m.Config.Layers, len(ids), full), m.NewBatch(len(ids))
	x, out := make([]float32, n*m.Config.Hidden), make([]float32, n*m.Config.Vocab)
	m.EmbedTokens(x, ids)
	for l := range m.Layers {
		b.Attention(m.Layers[l], x, n, kv.Layers[l], 0)
		b.MLP(m.Layers[l], rows[l], x, n, nil)
	}
	b.Logits(out, x, 0, n)
	return out
}

func stepLogits(m *model.Model, rows []model.Rows, ids []int32, full bool) []float32 {
	kv, s := model.NewKV(m.Config, m.Config.Layers, len(ids), full), m.NewStep(len(ids))
	off := make([]int, m.Config.Intermediate)
	for i := range off {
		off[i] = i * rows[0].Stride
	}
	x, out := make([]float32, m.Config.Hidden), make([]float32, len(ids)*m.Config.Vocab)
	for pos, id := range ids {
		m.EmbedTokens(x, []int32{id})
		for l := range m.Layers {
			s.Attention(m.Layers[l], x, kv.Layers[l], pos)
			s.BeginMLP(m.Layers[l], x)
			half := len(off) / 3
			s.MLPRows(rows[l].Mem, off[:half])
			s.MLPRows(rows[l].Mem, off[half:])
			s.EndMLP(x)
		}
		s.Logits(out[pos*m.Config.Vocab:(pos+1)*m.Config.Vocab], x)
	}
	return out
}

// TestRowsDoNotDependOnBatch pins that a token's result is the same bits in any batch and on any number of threads.
func TestRowsDoNotDependOnBatch(t *testing.T) {
	for _, name := range []string{"llama3", "mistral-window"} {
		m, rows, want := loadArch(t, name)
		forward := func(size, threads int) []float32 {
			m.Pool = kernels.NewPool(threads)
			defer m.Pool.Close()
			b, kv := m.NewBatch(size), model.NewKV(m.Config, m.Config.Layers, len(want.ids), true)
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
	kv := model.NewKV(m.Config, m.Config.Layers, 96, false)
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
	m.SetInvFreq(goldenInvFreq(t, c))
	g := golden{logits: floats("logits"), hidden0: floats("hidden.0")}
	g.stored = g.logits
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
	if name == "qwen2" {
		// A float32 checkpoint: its weights are rounded to float16 when they are loaded, which moves the logits of this
		// random network by up to 1 %. What is computed must agree with the reference on the rounded weights.
		g.gate, g.up, g.hidden0 = nil, nil, nil
		g.logits = newReference(t, name, true).forward(g.ids)
		t.Logf("rounding the weights to float16 moves a logit by at most %.2g of the largest", nearBy(t, name, g.logits, g.stored, largest(g.stored), 2e-2))
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
	return nearBy(t, what, got, want, scale, tolerance)
}

func nearBy(t *testing.T, what string, got, want []float32, scale, tolerance float64) float64 {
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
