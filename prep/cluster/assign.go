package cluster

import "neuroprefetcher/kernels"

// masks are n packed masks over m neurons, w words each.
type masks struct {
	data    []uint64 // (n, w)
	n, w, m int
}

func (s masks) row(i int) []uint64 { return s.data[i*s.w : (i+1)*s.w] }

// pick copies the rows at.
func (s masks) pick(at []int32) masks {
	out := masks{data: make([]uint64, len(at)*s.w), n: len(at), w: s.w, m: s.m}
	for i, t := range at {
		copy(out.row(i), s.row(int(t)))
	}
	return out
}

// tileBytes is how much of the centroid table is held against a block of tokens before the next tile: it stays in the
// second-level cache.
const (
	tileBytes  = 128 << 10
	blockToken = 32
)

// assign writes each row's nearest centroid of cent (k, w) and the distance, ties to the lowest id, and returns how
// many ids changed.
func assign(pool *kernels.Pool, s masks, cent []uint64, ids, dist []int32) int {
	k := len(cent) / s.w
	tile := max(1, min(k, tileBytes/(8*s.w)))
	blocks := (s.n + blockToken - 1) / blockToken
	changed := make([]int32, blocks)
	pool.Run(blocks, 1, func(lo, hi int) {
		d := make([]int32, tile)
		for b := lo; b < hi; b++ {
			first, last := b*blockToken, min((b+1)*blockToken, s.n)
			var best, at [blockToken]int32
			for c := 0; c < k; c += tile {
				n := min(tile, k-c)
				for i := first; i < last; i++ {
					kernels.HammingRows(d[:n], s.row(i), cent[c*s.w:(c+n)*s.w])
					j := i - first
					bd, ba := best[j], at[j]
					if c == 0 {
						bd, ba = d[0], 0
					}
					for r, v := range d[:n] {
						if v < bd {
							bd, ba = v, int32(c+r)
						}
					}
					best[j], at[j] = bd, ba
				}
			}
			for i := first; i < last; i++ {
				if ids[i] != at[i-first] {
					changed[b]++
				}
				ids[i], dist[i] = at[i-first], best[i-first]
			}
		}
	})
	total := 0
	for _, n := range changed {
		total += int(n)
	}
	return total
}

// members lists the rows of each of k clusters: rows[start[c]:start[c+1]], ascending.
func members(ids []int32, k int) (start []int, rows []int32) {
	start = make([]int, k+1)
	for _, c := range ids {
		start[c+1]++
	}
	for c := range k {
		start[c+1] += start[c]
	}
	next := append([]int(nil), start[:k]...)
	rows = make([]int32, len(ids))
	for i, c := range ids {
		rows[next[c]] = int32(i)
		next[c]++
	}
	return start, rows
}
