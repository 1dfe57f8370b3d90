package threshold

import (
	"fmt"
	"sync"

	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
)

// counter counts one layer's magnitudes on all threads; each thread has its own counters, which add up.
type counter struct {
	pool *kernels.Pool
	mu   sync.Mutex
	free []*set
	all  []*set
	bad  *forward.NonFinite // the first row that is not finite
}

// set is one thread's counters and working memory.
type set struct {
	counts [2][]uint64 // gate, up
	act    []float32
}

func newCounter(pool *kernels.Pool) *counter { return &counter{pool: pool} }

func (c *counter) take() *set {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s
	}
	s := &set{counts: [2][]uint64{make([]uint64, calib.Buckets), make([]uint64, calib.Buckets)}}
	c.all = append(c.all, s)
	return s
}

func (c *counter) give(s *set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, s)
}

// tap counts neurons [lo, hi) of t tokens.
func (c *counter) tap(row, t, lo, hi int, gate, up []float32) {
	n := hi - lo
	c.pool.Run(t, 16, func(first, last int) {
		s := c.take()
		defer c.give(s)
		if len(s.act) < n {
			s.act = make([]float32, n)
		}
		for i := first; i < last; i++ {
			g, u := gate[i*n:(i+1)*n], up[i*n:(i+1)*n]
			// A gate of minus infinity has magnitude zero: look at it before the activation.
			if !forward.Finite(g) {
				c.report(row+i, lo, "gate", g)
			}
			kernels.SiLU(s.act[:n], g)
			kernels.CountMagnitudes(s.counts[0], s.act[:n])
			if kernels.CountMagnitudes(s.counts[1], u) > 0 {
				c.report(row+i, lo, "up", u)
			}
		}
	})
}

// report keeps the earliest row, and of it the first projection and neuron.
func (c *counter) report(row, lo int, what string, x []float32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad != nil && c.bad.Row <= row {
		return
	}
	for i, v := range x {
		if v-v != 0 {
			c.bad = &forward.NonFinite{Row: row, What: fmt.Sprintf("%s activation of neuron %d", what, lo+i)}
			return
		}
	}
}

// collect moves the counters into dst.
func (c *counter) collect(dst [2][]uint64) {
	for _, s := range c.all {
		for p := range s.counts {
			for i, n := range s.counts[p] {
				dst[p][i] += n
			}
			clear(s.counts[p])
		}
	}
}
