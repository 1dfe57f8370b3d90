package model

import "sync"

// scratchPool hands out float32 buffers that grow to the largest size asked for.
type scratchPool struct{ p sync.Pool }

var scoresPool scratchPool

func (s *scratchPool) get(n int) []float32 {
	if v, ok := s.p.Get().(*[]float32); ok && cap(*v) >= n {
		return (*v)[:n]
	}
	return make([]float32, n)
}

func (s *scratchPool) put(v []float32) { s.p.Put(&v) }
