package cluster

import (
	"math/rand/v2"
	"slices"

	"neuroprefetcher/kernels"
)

// distinct returns the first row of each distinct mask, ascending, and stops at limit of them.
func distinct(s masks, limit int) []int32 {
	seen := make(map[uint64][]int32)
	var out []int32
	for i := 0; i < s.n && len(out) < limit; i++ {
		h := hashRow(s.row(i))
		same := func(j int32) bool { return slices.Equal(s.row(int(j)), s.row(i)) }
		if !slices.ContainsFunc(seen[h], same) {
			seen[h] = append(seen[h], int32(i))
			out = append(out, int32(i))
		}
	}
	return out
}

func hashRow(row []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, x := range row {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// sample picks about n rows to iterate on, one at random from each of n equal stretches, ascending; all rows if there
// are no more than n. Rows of reps are added when the sample has fewer than len(reps) distinct masks.
func sample(s masks, n int, reps []int32, rng *rand.Rand) []int32 {
	if s.n <= n {
		at := make([]int32, s.n)
		for i := range at {
			at[i] = int32(i)
		}
		return at
	}
	at := make([]int32, n)
	for i := range at {
		lo, hi := i*s.n/n, (i+1)*s.n/n
		at[i] = int32(lo + rng.IntN(hi-lo))
	}
	if len(distinct(s.pick(at), len(reps))) < len(reps) {
		at = append(at, reps...)
		slices.Sort(at)
		at = slices.Compact(at)
	}
	return at
}

// seedCentroids chooses k rows, the first at random and each next with probability proportional to the squared distance
// to the nearest chosen one (k-means++). s must have k distinct masks; so none is chosen twice.
func seedCentroids(pool *kernels.Pool, s masks, k int, rng *rand.Rand) []uint64 {
	cent := make([]uint64, 0, k*s.w)
	near, d := make([]int32, s.n), make([]int32, s.n)
	next := rng.IntN(s.n)
	for {
		cent = append(cent, s.row(next)...)
		if len(cent) == k*s.w {
			return cent
		}
		first := len(cent) == s.w
		q := s.row(next)
		pool.Run(s.n, 1024, func(lo, hi int) {
			kernels.HammingRows(d[lo:hi], q, s.data[lo*s.w:hi*s.w])
			for i := lo; i < hi; i++ {
				if first || d[i] < near[i] {
					near[i] = d[i]
				}
			}
		})
		total := uint64(0)
		for _, v := range near {
			total += uint64(v) * uint64(v)
		}
		r := rng.Uint64N(total)
		for i, v := range near {
			sq := uint64(v) * uint64(v)
			if r < sq {
				next = i
				break
			}
			r -= sq
		}
	}
}
