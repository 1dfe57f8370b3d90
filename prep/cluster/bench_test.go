package cluster

import (
	"context"
	"math/rand/v2"
	"testing"

	"neuroprefetcher/kernels"
)

// noisy masks: n rows near one of kinds centres, a quarter of whose bits is set; each bit flips with probability 1/8.
func noisyMasks(n, m, kinds int) masks {
	rng := rand.New(rand.NewPCG(1, 1))
	s := randomMasks(kinds, m, kinds, 1)
	out := masks{data: make([]uint64, n*s.w), n: n, w: s.w, m: m}
	for i := range n {
		c := s.row(rng.IntN(kinds))
		for w := range c {
			out.row(i)[w] = c[w] ^ rng.Uint64()&rng.Uint64()&rng.Uint64()
		}
		if m%64 != 0 {
			out.row(i)[s.w-1] &= 1<<(m%64) - 1
		}
	}
	return out
}

// BenchmarkTable clusters one table of SmolLM2-135M's shape.
func BenchmarkTable(b *testing.B) {
	s := noisyMasks(200_000, 1536, 2000)
	pool := kernels.NewPool(0)
	defer pool.Close()
	b.ResetTimer()
	for range b.N {
		if _, err := kMajority(context.Background(), pool, s, 512, rand.New(rand.NewPCG(1, 1))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssign is the hot loop: every token against every centroid.
func BenchmarkAssign(b *testing.B) {
	for _, m := range []int{1536, 14336} {
		b.Run(map[int]string{1536: "smollm2", 14336: "mistral"}[m], func(b *testing.B) {
			s := noisyMasks(20_000, m, 512)
			ids, dist := make([]int32, s.n), make([]int32, s.n)
			pool := kernels.NewPool(0)
			defer pool.Close()
			b.SetBytes(int64(s.n) * 512 * int64(s.w) * 8)
			for b.Loop() {
				assign(pool, s, s.data[:512*s.w], ids, dist)
			}
		})
	}
}
