package resident

import (
	"fmt"
	"math"
)

// Chooser turns a selector's scores of one layer into the set of neurons that the layer keeps and computes. Not safe for
// concurrent use: it owns scratch of 2 × 8 bytes per neuron.
type Chooser struct {
	KMax   int     // size of the set
	Margin float32 // added to the scores of residents, so that a newcomer must be better by this much
	Cap    int     // most neurons that may come in per step, beyond the free slots; < 0: no cap
	Pins   []int32 // always in the set, before anything else; they count as incoming but are never held back

	rank []uint64 // (M) by id: larger is better, no two equal
	work []uint64 // (M) permuted by the selection
}

const pinned = 0xffffffff // high half of a pin's rank; above every score

// Choose writes the next active set, KMax ids ascending, to active[:KMax].
//
// The order is: pins; then score (plus Margin for residents of m) descending; equal scores to the lower id. A NaN score ranks
// below every number, −Inf included. With a cap, the best Cap + (free slots of m) newcomers at most come in, and the best residents stay.
// The result depends on nothing but the arguments and the fields. m may be nil: nothing resident.
func (c *Chooser) Choose(scores []float32, m *Map, active []int32) {
	if c.KMax > len(scores) || len(c.Pins) > c.KMax || (m != nil && m.Len() > c.KMax) {
		panic(fmt.Sprintf("resident: K_max %d with %d neurons, %d pins", c.KMax, len(scores), len(c.Pins)))
	}
	active = active[:c.KMax]
	if c.KMax == len(scores) {
		for i := range active {
			active[i] = int32(i)
		}
		return
	}
	if c.KMax == 0 {
		return
	}
	c.score(scores, m)
	work := c.work[:copy(c.work, c.rank)]
	cut := nthLargest(work, c.KMax)
	cutOld := cut // for residents; differs from newcomers' only when the cap binds
	if c.Cap >= 0 && m != nil {
		if quota := c.Cap + c.KMax - m.Len(); c.newcomers(m, cut) > quota {
			cut, cutOld = c.capped(m, quota)
		}
	}
	k := 0
	for n, r := range c.rank {
		limit := cut
		if m != nil && m.slotOf[n] >= 0 {
			limit = cutOld
		}
		if r >= limit || r>>32 == pinned {
			active[k] = int32(n)
			k++
		}
	}
	if k != c.KMax {
		panic(fmt.Sprintf("resident: chose %d of %d neurons, pins repeated?", k, c.KMax))
	}
}

// score fills rank: the order of Choose as one integer, score in the high half, inverted id in the low half.
func (c *Chooser) score(scores []float32, m *Map) {
	if len(c.rank) != len(scores) {
		c.rank, c.work = make([]uint64, len(scores)), make([]uint64, len(scores))
	}
	for n, s := range scores {
		if m != nil && m.slotOf[n] >= 0 {
			s += c.Margin
		}
		c.rank[n] = uint64(sortable(s))<<32 | uint64(^uint32(n))
	}
	for _, n := range c.Pins {
		c.rank[n] = pinned<<32 | uint64(^uint32(n))
	}
}

// newcomers counts ids at or above the cut that are not resident.
func (c *Chooser) newcomers(m *Map, cut uint64) int {
	k := 0
	for n, r := range c.rank {
		if r >= cut && m.slotOf[n] < 0 {
			k++
		}
	}
	return k
}

// capped returns the cuts for newcomers and for residents when only quota newcomers may come in. There are always enough
// residents: what the cap keeps out is what they leave in.
func (c *Chooser) capped(m *Map, quota int) (newcomer, old uint64) {
	keep := c.KMax
	k := 0
	for n, r := range c.rank { // newcomers into work
		switch {
		case r>>32 == pinned:
			keep--
			if m.slotOf[n] < 0 {
				quota--
			}
		case m.slotOf[n] < 0:
			c.work[k] = r
			k++
		}
	}
	quota = max(quota, 0)
	newcomer = nthLargest(c.work[:k], quota)
	k = 0
	for n, r := range c.rank { // residents into work
		if m.slotOf[n] >= 0 && r>>32 != pinned {
			c.work[k] = r
			k++
		}
	}
	return newcomer, nthLargest(c.work[:k], keep-quota)
}

// sortable maps a float32 to an integer of the same order; −0 equals 0, NaN is 0 and below −Inf.
func sortable(f float32) uint32 {
	if f != f {
		return 0
	}
	if f == 0 {
		f = 0
	}
	b := math.Float32bits(f)
	if f == 0 {
		b = 0
	}
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// nthLargest returns the n-th largest of a (1 = the largest), permuting a; for n = 0 a bound above every rank.
// Quickselect, linear on average; the pivots come from a fixed sequence, so that the time too is reproducible.
func nthLargest(a []uint64, n int) uint64 {
	if n <= 0 {
		return math.MaxUint64
	}
	seed := uint32(len(a)) | 1
	for {
		if len(a) == 1 {
			return a[0]
		}
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		p := median(a[int(seed)%len(a)], a[len(a)/2], a[len(a)-1])
		// Hoare: a[:i] > p-ish on the left, the rest on the right
		i, j := 0, len(a)-1
		for i <= j {
			for a[i] > p {
				i++
			}
			for a[j] < p {
				j--
			}
			if i <= j {
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		switch { // a[:j+1] ≥ p, a[i:] ≤ p, between them only p
		case n <= j+1:
			a = a[:j+1]
		case n > i:
			n -= i
			a = a[i:]
		default:
			return p
		}
	}
}

func median(a, b, c uint64) uint64 {
	if a > b {
		a, b = b, a
	}
	return max(a, min(b, c))
}
