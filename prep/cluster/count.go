package cluster

import (
	"math/bits"

	"neuroprefetcher/kernels"
)

// planes are 64 counters side by side: bit b of plane j is bit j of counter b. 32 planes count more rows than an int32
// can name.
type planes [32]uint64

// add adds the words data[row*w] of the rows to the counters; data begins at the wanted word column. Eight rows at a
// time go through a tree of carry-save adders, so that a row costs a few operations for all 64 neurons.
func (p *planes) add(data []uint64, w int, rows []int32) {
	for ; len(rows) >= 8; rows = rows[8:] {
		at := func(i int) uint64 { return data[int(rows[i])*w] }
		var twoA, twoB, fourA, fourB, eight uint64
		twoA, p[0] = carrySave(p[0], at(0), at(1))
		twoB, p[0] = carrySave(p[0], at(2), at(3))
		fourA, p[1] = carrySave(p[1], twoA, twoB)
		twoA, p[0] = carrySave(p[0], at(4), at(5))
		twoB, p[0] = carrySave(p[0], at(6), at(7))
		fourB, p[1] = carrySave(p[1], twoA, twoB)
		eight, p[2] = carrySave(p[2], fourA, fourB)
		p.ripple(3, eight)
	}
	for _, r := range rows {
		p.ripple(0, data[int(r)*w])
	}
}

// ripple adds x, worth 2^j, to the counters.
func (p *planes) ripple(j int, x uint64) {
	for ; x != 0; j++ {
		p[j], x = p[j]^x, p[j]&x
	}
}

// carrySave adds three bits per lane.
func carrySave(a, b, c uint64) (high, low uint64) {
	u := a ^ b
	return a&b | u&c, u ^ c
}

// above is the mask of the counters that are greater than n.
func (p *planes) above(n int) uint64 {
	more, same := uint64(0), ^uint64(0)
	for j := len(p) - 1; j >= 0; j-- {
		if n>>j&1 == 0 {
			more |= same & p[j]
			same &^= p[j]
		} else {
			same &= p[j]
		}
	}
	return more
}

// unpack adds the counters to counts, at most 64.
func (p *planes) unpack(counts []int32) {
	for j, x := range p {
		for ; x != 0; x &= x - 1 {
			counts[bits.TrailingZeros64(x)] += 1 << j
		}
	}
}

// majorities sets each centroid that has members to the mask of the neurons that more than half of them have.
func majorities(pool *kernels.Pool, s masks, ids []int32, cent []uint64) {
	k := len(cent) / s.w
	start, rows := members(ids, k)
	pool.Run(k, 4, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			of := rows[start[c]:start[c+1]]
			if len(of) == 0 {
				continue
			}
			for w := range s.w {
				var p planes
				p.add(s.data[w:], s.w, of)
				cent[c*s.w+w] = p.above(len(of) / 2)
			}
		}
	})
}

// countBits returns how many members of each cluster have each neuron (k, m).
func countBits(pool *kernels.Pool, s masks, ids []int32, k int) []int32 {
	counts := make([]int32, k*s.m)
	start, rows := members(ids, k)
	pool.Run(k, 4, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			for w := range s.w {
				var p planes
				p.add(s.data[w:], s.w, rows[start[c]:start[c+1]])
				p.unpack(counts[c*s.m+w*64 : min(c*s.m+w*64+64, (c+1)*s.m)])
			}
		}
	})
	return counts
}
