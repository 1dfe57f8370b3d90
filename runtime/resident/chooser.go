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
	cut := nthLargest(c.work[:copy(c.work, c.rank)], c.KMax)
	cutOld := cut // for residents; differs from newcomers' only when the cap binds
	if c.Cap >= 0 && m != nil {
		if quota := c.Cap + c.KMax - m.Len(); c.newcomers(m, cut) > quota {
			cut, cutOld = c.capped(m, quota)
		}
	}
	k := 0
	for n, r := range c.rank {
		if k == len(active) {
			break
		}
		limit := cut
		if m != nil && m.slotOf[n] >= 0 {
			limit = cutOld
		}
		active[k] = int32(n) // overwritten by the next one unless it counts: which do is unpredictable for a branch
		k += one(r >= min(limit, pinned<<32))
	}
}

// one turns a condition into a number without a branch.
func one(b bool) int {
	var n int
	if b {
		n = 1
	}
	return n
}

// score fills rank: the order of Choose as one integer, score in the high half, inverted id in the low half.
func (c *Chooser) score(scores []float32, m *Map) {
	if len(c.rank) != len(scores) {
		c.rank, c.work = make([]uint64, len(scores)), make([]uint64, len(scores))
	}
	if m == nil {
		for n, s := range scores {
			c.rank[n] = rank(s, n)
		}
	} else {
		bonus := [2]float32{0, c.Margin}
		for n, s := range scores {
			c.rank[n] = rank(s+bonus[one(m.slotOf[n] >= 0)], n)
		}
	}
	for _, n := range c.Pins {
		c.rank[n] = pinned<<32 | uint64(^uint32(n))
	}
}

// newcomers counts ids at or above the cut that are not resident.
func (c *Chooser) newcomers(m *Map, cut uint64) int {
	k := 0
	for n, r := range c.rank {
		k += one(r >= cut) & one(m.slotOf[n] < 0)
	}
	return k
}

// capped returns the cuts for newcomers and for residents when only quota newcomers may come in. There are always enough
// residents: what the cap keeps out is what they leave in.
func (c *Chooser) capped(m *Map, quota int) (newcomer, old uint64) {
	fresh, kept := 0, len(c.work) // newcomers from the front of work, residents from its back, pins in neither
	keep := c.KMax
	for n, r := range c.rank {
		is := one(m.slotOf[n] >= 0)
		if r>>32 == pinned {
			keep--
			quota -= 1 - is
			continue
		}
		c.work[fresh], c.work[kept-1] = r, r
		fresh += 1 - is
		kept -= is
	}
	quota = max(quota, 0)
	return nthLargest(c.work[:fresh], quota), nthLargest(c.work[kept:], keep-quota)
}

// rank orders by score, then by id. NaN is below −Inf, −0 equals 0, and no rank reaches pinned.
func rank(f float32, n int) uint64 {
	b := math.Float32bits(f)
	switch {
	case f != f:
		b = 0
	case b == 1<<31:
		b = 1 << 31 // −0 as 0
	default:
		b ^= uint32(int32(b)>>31) | 1<<31
	}
	return uint64(b)<<32 | uint64(^uint32(n))
}

// nthLargest returns the n-th largest of a (1 = the largest), permuting a; for n = 0 a bound above every rank. Linear: one
// counting pass by the leading bits narrows a long list down to those of one bucket, quickselect does the rest.
func nthLargest(a []uint64, n int) uint64 {
	if n <= 0 {
		return math.MaxUint64
	}
	if len(a) < 512 {
		return quickselect(a, n)
	}
	const bits = 12 // sign, exponent and three bits of the mantissa
	var count [1 << bits]int32
	for _, r := range a {
		count[r>>(64-bits)]++
	}
	top := len(count) - 1
	for ; n > int(count[top]); top-- {
		n -= int(count[top])
	}
	k := 0
	for _, r := range a {
		a[k] = r
		k += one(r>>(64-bits) == uint64(top))
	}
	return quickselect(a[:k], n)
}

// quickselect is Hoare's, n from 1 to len(a). The pivots come from a fixed sequence, so that the time too is reproducible.
func quickselect(a []uint64, n int) uint64 {
	seed := uint32(len(a)) | 1
	for len(a) > 1 {
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		p := median(a[seed%uint32(len(a))], a[len(a)/2], a[len(a)-1])
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
	return a[0]
}

func median(a, b, c uint64) uint64 {
	if a > b {
		a, b = b, a
	}
	return max(a, min(b, c))
}
