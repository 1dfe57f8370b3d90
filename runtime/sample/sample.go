package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"neuroprefetcher/format"
)

// ErrNonFinite marks logits that no choice can be made from: NaN or an infinity.
var ErrNonFinite = errors.New("non-finite logit")

// Params says how to choose. The zero value of every field switches its step off; Temp 0 is greedy.
type Params struct {
	Temp              float64
	TopK              int
	TopP              float64 // 0 or 1: off
	MinP              float64
	RepetitionPenalty float64 // 0 or 1: off; > 1 discourages what history holds
	Seed              uint64
}

// Validate names the first parameter that is out of range.
func (p Params) Validate() error {
	in := func(v, lo, hi float64) bool { return v >= lo && v <= hi } // false for NaN
	switch {
	case !in(p.Temp, 0, 1e6):
		return format.Inputf("temperature %g is not in 0…1e6", p.Temp)
	case p.TopK < 0:
		return format.Inputf("top-k %d is negative", p.TopK)
	case !in(p.TopP, 0, 1):
		return format.Inputf("top-p %g is not in 0…1", p.TopP)
	case !in(p.MinP, 0, 1):
		return format.Inputf("min-p %g is not in 0…1", p.MinP)
	case p.RepetitionPenalty != 0 && !in(p.RepetitionPenalty, 1e-3, 1e3):
		return format.Inputf("repetition penalty %g is not in 0.001…1000", p.RepetitionPenalty)
	}
	return nil
}

// Sampler holds the generator and working memory of one generation.
type Sampler struct {
	p     Params
	rng   *rand.Rand
	logit []float32 // (V) after the penalty
	seen  []uint64  // (V) bits; all zero between calls
	order []int32   // (V) candidates; a heap from which the best are taken
	kept  []int32   // candidates that are left, best first where sorted
	prob  []float64 // of kept, relative to the best candidate's
}

// New checks p and returns a sampler that starts from its seed.
func New(p Params) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{p: p, rng: rand.New(rand.NewPCG(p.Seed, 0x9e3779b97f4a7c15))}, nil
}

// Sample returns the next token. history is what the repetition penalty applies to: ids of prompt and output so far. logits are not changed.
func (s *Sampler) Sample(logits []float32, history []int32) (int32, error) {
	if len(logits) == 0 {
		return 0, fmt.Errorf("no logits")
	}
	for i, l := range logits {
		if l-l != 0 { // NaN and both infinities
			return 0, fmt.Errorf("token %d of %d has logit %g: %w", i, len(logits), l, ErrNonFinite)
		}
	}
	s.grow(len(logits))
	if s.p.RepetitionPenalty != 0 && s.p.RepetitionPenalty != 1 {
		logits = s.penalise(logits, history)
	}
	best := int32(0)
	for i, l := range logits {
		if l > logits[best] {
			best = int32(i)
		}
	}
	if s.p.Temp == 0 {
		return best, nil
	}
	s.keep(logits, best)
	total := 0.0
	for _, p := range s.prob {
		total += p
	}
	u := s.rng.Float64() * total
	for i, p := range s.prob {
		if u -= p; u < 0 {
			return s.kept[i], nil
		}
	}
	for i := len(s.prob) - 1; i > 0; i-- { // rounding used up the last of u
		if s.prob[i] > 0 {
			return s.kept[i], nil
		}
	}
	return s.kept[0], nil
}

func (s *Sampler) grow(n int) {
	if cap(s.order) >= n {
		return
	}
	s.logit = make([]float32, n)
	s.seen = make([]uint64, (n+63)/64)
	s.order = make([]int32, n)
	s.kept = make([]int32, 0, n)
	s.prob = make([]float64, 0, n)
}

// penalise divides positive and multiplies negative logits of what is in history, once for each id.
func (s *Sampler) penalise(logits []float32, history []int32) []float32 {
	out := s.logit[:len(logits)]
	copy(out, logits)
	for _, id := range history {
		if id < 0 || int(id) >= len(out) || s.seen[id/64]>>(id%64)&1 != 0 {
			continue
		}
		s.seen[id/64] |= 1 << (id % 64)
		l := float64(out[id])
		if l > 0 {
			l /= s.p.RepetitionPenalty
		} else {
			l *= s.p.RepetitionPenalty
		}
		out[id] = float32(max(-math.MaxFloat32, min(l, math.MaxFloat32)))
	}
	for _, id := range history {
		if id >= 0 && int(id) < len(out) {
			s.seen[id/64] = 0
		}
	}
	return out
}

// keep fills kept and prob with the candidates that the truncations leave.
func (s *Sampler) keep(logits []float32, best int32) {
	top := float64(logits[best])
	relative := func(id int32) float64 { return math.Exp((float64(logits[id]) - top) / s.p.Temp) }
	s.kept, s.prob = s.kept[:0], s.prob[:0]
	k := s.p.TopK
	if k == 0 || k > len(logits) {
		k = len(logits)
	}
	nucleus := s.p.TopP > 0 && s.p.TopP < 1
	if k == len(logits) && !nucleus { // in order of ids, without sorting
		for id := range logits {
			if p := relative(int32(id)); p >= s.p.MinP {
				s.kept, s.prob = append(s.kept, int32(id)), append(s.prob, p)
			}
		}
		return
	}
	h := s.order[:len(logits)]
	for i := range h {
		h[i] = int32(i)
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i, logits)
	}
	total := 0.0
	if k == len(logits) {
		for id := range logits {
			total += relative(int32(id))
		}
	}
	mass := 0.0
	for len(s.kept) < k {
		if k == len(logits) && mass >= s.p.TopP*total && len(s.kept) > 0 {
			break // the nucleus is full: the rest need not be sorted
		}
		id := h[0]
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h, 0, logits)
		p := relative(id)
		s.kept, s.prob = append(s.kept, id), append(s.prob, p)
		mass += p
	}
	n := len(s.kept)
	if nucleus && k < len(logits) { // the mass is that of the k best
		total, mass = mass, 0
		for n = 0; n < len(s.prob) && (n == 0 || mass < s.p.TopP*total); n++ {
			mass += s.prob[n]
		}
	}
	for n > 1 && s.prob[n-1] < s.p.MinP {
		n--
	}
	s.kept, s.prob = s.kept[:n], s.prob[:n]
}

// siftDown restores a heap whose root is the best candidate: larger logit, then lower id.
func siftDown(h []int32, i int, logits []float32) {
	better := func(a, b int32) bool { return logits[a] > logits[b] || logits[a] == logits[b] && a < b }
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && better(h[c+1], h[c]) {
			c++
		}
		if !better(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
