package train

import (
	"math/rand/v2"
	"testing"

	"neuroprefetcher/kernels"
)

// BenchmarkStep is one optimizer step on 256 tokens with the network of SmolLM2-135M.
func BenchmarkStep(b *testing.B) {
	s := shape{h: 576, t: 120, k0: 512}
	prior := make([][]int, 58)
	for c := range prior {
		s.heads = append(s.heads, 512)
		prior[c] = make([]int, 512)
	}
	pool := kernels.NewPool(0)
	defer pool.Close()
	w, g, m, v := s.start(1, prior), s.zero(), s.zero(), s.zero()
	bt := newBatch(s, pool, 256)
	bt.n = 256
	rng := rand.New(rand.NewPCG(1, 1))
	for j := range bt.in {
		for i := range bt.in[j] {
			bt.in[j][i] = float32(rng.NormFloat64())
		}
	}
	for c := range bt.want {
		for i := range bt.want[c] {
			bt.want[c][i] = int32(rng.IntN(512))
		}
	}
	b.ResetTimer()
	for i := range b.N {
		bt.forward(w)
		bt.backward(w, g)
		adamW(pool, w, g, m, v, i, 1e-3)
	}
	b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(6*256*float64(s.count())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
