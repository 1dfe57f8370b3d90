package model_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"neuroprefetcher/kernels"
)

// TestMLPRowsOf holds a sparse layer with means against its definition in float64.
func TestMLPRowsOf(t *testing.T) {
	m, rows, _ := loadArch(t, "llama2")
	c, r := m.Config, rand.New(rand.NewPCG(1, 2))
	vector := func(n int, scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(scale * r.NormFloat64())
		}
		return v
	}
	h, l := c.Hidden, c.Layers-1
	x, mean, sum := vector(h, 1), vector(c.Intermediate, 0.1), vector(h, 1)
	var ids []int32
	var off []int
	for n := range c.Intermediate {
		if r.IntN(3) > 0 {
			ids, off = append(ids, int32(n)), append(off, n*rows[l].Stride)
		}
	}
	s := m.NewStep(4)
	got := append([]float32(nil), x...)
	in := s.BeginMLP(m.Layers[l], got)
	want := make([]float64, h)
	for i := range want {
		want[i] = float64(x[i]) + float64(sum[i])
	}
	for i, n := range ids {
		rec := make([]float32, 3*h)
		kernels.F16ToF32(rec, rows[l].Mem[off[i]:off[i]+3*h])
		g, u := 0.0, 0.0
		for j, v := range in {
			g += float64(v) * float64(rec[j])
			u += float64(v) * float64(rec[h+j])
		}
		a := g/(1+math.Exp(-g))*u - float64(mean[n])
		for j := range want {
			want[j] += a * float64(rec[2*h+j])
		}
	}
	s.MLPRowsOf(rows[l].Mem, off, ids, mean, sum)
	s.EndMLP(got)
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1e-4*(1+math.Abs(w)) {
			t.Fatalf("element %d: %v, want %v", i, got[i], w)
		}
	}
	// The next layer is without means again.
	plain := append([]float32(nil), x...)
	s.BeginMLP(m.Layers[l], plain)
	s.MLPRows(rows[l].Mem, off)
	s.EndMLP(plain)
	other := append([]float32(nil), x...)
	fresh := m.NewStep(4)
	fresh.BeginMLP(m.Layers[l], other)
	fresh.MLPRows(rows[l].Mem, off)
	fresh.EndMLP(other)
	for i := range plain {
		if plain[i] != other[i] {
			t.Fatalf("element %d: %v after a layer with means, %v without one", i, plain[i], other[i])
		}
	}
}
