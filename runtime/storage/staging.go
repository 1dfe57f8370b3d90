package storage

import "math/bits"

// stagingUnit is what staging is handed out in: a page, so that no read pins a page more than it needs.
const stagingUnit = 4096

// staging is the area where reads land before they are copied. First fit from the low end: the memory in use stays small and
// warm, and a free area always has room for one longest read.
type staging struct {
	mem  []byte
	free func()
	used []uint64 // one bit per unit
	n    int      // units
}

func newStaging(size int) (*staging, error) {
	n := size / stagingUnit
	mem, free, err := AllocAligned(n * stagingUnit)
	if err != nil {
		return nil, err
	}
	s := &staging{mem: mem, free: free, used: make([]uint64, (n+63)/64), n: n}
	if n%64 != 0 {
		s.used[len(s.used)-1] = ^uint64(0) << (n % 64) // beyond the end
	}
	return s, nil
}

// take finds room for size bytes; nil when there is none now.
func (s *staging) take(size int) []byte {
	need := (size + stagingUnit - 1) / stagingUnit
	run := 0
	for i := 0; i < len(s.used)*64; {
		w := s.used[i>>6] >> (i & 63)
		if w&1 != 0 {
			i += bits.TrailingZeros64(^w)
			run = 0
			continue
		}
		zeros := min(bits.TrailingZeros64(w), 64-i&63)
		run += zeros
		i += zeros
		if run >= need {
			first := i - run
			s.mark(first, need)
			return s.mem[first*stagingUnit:][:size:size]
		}
	}
	return nil
}

// give takes back what take returned.
func (s *staging) give(b []byte) {
	s.mark(int(address(b)-address(s.mem))/stagingUnit, (len(b)+stagingUnit-1)/stagingUnit)
}

// mark flips n units from first on.
func (s *staging) mark(first, n int) {
	for n > 0 {
		bit := first & 63
		k := min(n, 64-bit)
		s.used[first>>6] ^= ^uint64(0) >> (64 - k) << bit
		first += k
		n -= k
	}
}
