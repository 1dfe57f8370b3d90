package model

import "sync"

// scratch hands out float32 buffers to the threads of a batch and keeps as many as were in use at once. They are as long
// as the cache can ever ask for, so that a growing sequence leaves no shorter ones behind.
type scratch struct {
	mu   sync.Mutex
	free [][]float32
}

// get returns a buffer of at least n elements; new ones have room for capacity.
func (s *scratch) get(n, capacity int) []float32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		v := s.free[last]
		s.free = s.free[:last]
		if cap(v) >= n {
			return v[:n]
		}
	}
	return make([]float32, n, max(n, capacity))
}

func (s *scratch) put(v []float32) {
	s.mu.Lock()
	s.free = append(s.free, v)
	s.mu.Unlock()
}
