package cluster

import (
	"context"
	"math/rand/v2"

	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
)

const (
	// sampleTokens is how many tokens the iterations see, at least 32 per centroid of the paper's 512 twice over; the
	// final assignment and all counts see every token.
	sampleTokens = 32_768
	// sampleTimesK keeps the sample large for greater K.
	sampleTimesK = 32
	// maxRounds bounds the iterations; they end earlier when fewer than one id in stillOne changes.
	maxRounds = 20
	stillOne  = 1000
)

// kMajority clusters masks over s.m neurons into at most k centroids.
//
// The iterations run on a sample. Centroids start from seedCentroids; a centroid is the majority of its members. One
// that lost its members is set to the sampled mask that lies farthest from its own centroid, ties to the earliest.
// Then every token is assigned; a centroid that is empty now (or equal to one of a lower id) is set to the farthest
// mask again until none is. That ends: a centroid set so is a mask with distance zero to itself only, so it keeps that
// mask, and there are at least K_eff distinct masks.
func kMajority(ctx context.Context, pool *kernels.Pool, s masks, k int, rng *rand.Rand) (*calib.Table, error) {
	reps := distinct(s, k)
	k = len(reps)
	at := sample(s, max(sampleTokens, sampleTimesK*k), reps, rng)
	sub := s
	if len(at) < s.n {
		sub = s.pick(at)
	}
	cent := seedCentroids(pool, sub, k, rng)
	ids, dist := make([]int32, sub.n), make([]int32, sub.n)
	for i := range ids {
		ids[i] = -1
	}
	for range maxRounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		changed := assign(pool, sub, cent, ids, dist)
		refilled := refill(pool, sub, cent, ids, dist)
		if refilled == 0 && changed*stillOne < sub.n {
			break
		}
		majorities(pool, sub, ids, cent)
	}
	t := &calib.Table{K: k, Centroids: cent, IDs: make([]int32, s.n)}
	full := make([]int32, s.n)
	assign(pool, s, cent, t.IDs, full)
	for refill(pool, s, cent, t.IDs, full) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	t.Counts = countBits(pool, s, t.IDs, k)
	return t, nil
}

// refill sets each centroid that has no member to the mask farthest from its own centroid, ties to the earliest, and
// moves the rows that are nearer to it (or as near, with a higher id); what it leaves is what a full assign would give.
// It returns how many centroids it set; those emptied by the moves are left for the next call.
func refill(pool *kernels.Pool, s masks, cent []uint64, ids, dist []int32) int {
	k := len(cent) / s.w
	size := make([]int, k)
	for _, c := range ids {
		size[c]++
	}
	set := 0
	d := make([]int32, s.n)
	for c := range k {
		if size[c] > 0 {
			continue
		}
		far := 0
		for i, v := range dist {
			if v > dist[far] {
				far = i
			}
		}
		if dist[far] == 0 {
			break // every mask is a centroid already; the remaining empty ones cannot be filled here
		}
		set++
		q := cent[c*s.w : (c+1)*s.w]
		copy(q, s.row(far))
		pool.Run(s.n, 1024, func(lo, hi int) { kernels.HammingRows(d[lo:hi], q, s.data[lo*s.w:hi*s.w]) })
		for i, v := range d {
			if v < dist[i] || v == dist[i] && int32(c) < ids[i] {
				size[ids[i]]--
				ids[i], dist[i] = int32(c), v
				size[c]++
			}
		}
	}
	return set
}
