package measure

import (
	"os"
	"time"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/storage"
)

// memoryBytes is read again and again: far beyond any cache.
const memoryBytes = 512 << 20

// Memory measures how fast all threads together read memory, in bytes per second: the best of several passes.
func Memory(threads int) (float64, error) {
	mem, free, err := storage.AllocAligned(memoryBytes)
	if err != nil {
		return 0, err
	}
	defer free()
	pool := kernels.NewPool(threads)
	defer pool.Close()
	x := kernels.BytesF32(mem)
	const grain = 64 << 10
	sums := make([]float32, len(x)/grain)
	pass := func(lo, hi int) {
		for i := lo; i < hi; i += grain {
			sums[i/grain] = kernels.DotF32(x[i:i+grain], x[i:i+grain]) // the second operand comes from the cache
		}
	}
	pool.Run(len(x), grain, func(lo, hi int) { clear(x[lo:hi]) }) // gives every page its memory
	best := time.Duration(1 << 62)
	for range 8 {
		start := time.Now()
		pool.Run(len(x), grain, pass)
		best = min(best, time.Since(start))
	}
	return memoryBytes / best.Seconds(), nil
}

// ForgetPeak makes the kernel forget the process's peak memory, so that what was measured before a run is not taken for
// the run's. Where the kernel does not do that, the peak is too large, never too small.
func ForgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// Touched is how many bytes of weights and cache a token of the engine's mode reads from memory.
func Touched(e *engine.Engine) int64 {
	c, g, p := e.Config, e.Bundle.Manifest.Rows, e.Plan
	n := model.ResidentBytes(c)
	if !c.Tied {
		n -= 2 * int64(c.Vocab) * int64(c.Hidden) // one row of the embedding is read
	}
	sparse := int64(g.Neurons)
	if p.Mode == engine.ModeSparse {
		sparse = int64(p.KMax)
	}
	n += (int64(p.Dense)*int64(g.Neurons) + int64(c.Layers-p.Dense)*sparse) * int64(g.RowBytes)
	return n + model.KVBytes(c, c.Layers, e.Len(), false)
}
