package vocab

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
)

const (
	angles    = 6                       // rounds of k-means by angle, which begin
	coverages = 6                       // rounds by coverage, which follow
	leastRows = 8192                    // rounds go over that many tokens, or
	perCenter = calib.TokensPerCentroid // this many for every centroid if that is more
	assignAt  = 4096                    // tokens of one product
)

// importances are tokens' vectors of importance (T, M) in float16, each divided by its norm; rows of zeros do not count.
type importances struct {
	x    []uint16
	n, m int
}

func (s *importances) row(i int) []uint16 { return s.x[i*s.m : (i+1)*s.m] }

// counted lists the rows that are not zero.
func (s *importances) counted() (at []int32) {
	for i := range s.n {
		if slices.ContainsFunc(s.row(i), func(v uint16) bool { return v != 0 }) {
			at = append(at, int32(i))
		}
	}
	return at
}

// clusters is a vocabulary: tokens' ids, and the sets that they were named by.
type clusters struct {
	k    int
	ids  []int32   // (T)
	sets []float32 // (K, M) 1 for the half of all neurons that a centroid's members find most important, else 0
}

// cluster makes a vocabulary of k centroids. A token belongs to the centroid whose set covers most of its importance,
// ties to the lower id; a centroid's set is the half of the neurons with the largest mean over its members. Plain
// k-means by angle comes first.
func cluster(ctx context.Context, pool *kernels.Pool, s *importances, k int, rng *rand.Rand) (*clusters, error) {
	at := s.counted()
	if len(at) < k {
		return nil, format.Hint(format.Inputf("%d centroids want at least as many tokens with activations that differ from zero, and %d for each to say something: there are %d", k, perCenter, len(at)),
			"name more --text files, or lower --joint-centroids")
	}
	if most := max(leastRows, perCenter*k); len(at) > most {
		some := make([]int32, most)
		for i := range some {
			lo, hi := i*len(at)/most, (i+1)*len(at)/most
			some[i] = at[lo+rng.IntN(hi-lo)]
		}
		at = some
	}
	sub := &importances{x: make([]uint16, 0, len(at)*s.m), n: len(at), m: s.m}
	for _, i := range at {
		sub.x = append(sub.x, s.row(int(i))...)
	}
	c := make([]float32, 0, k*s.m)
	for _, i := range rng.Perm(sub.n)[:k] {
		row := make([]float32, s.m)
		kernels.F16ToF32(row, sub.row(i))
		c = append(c, row...)
	}
	ids := make([]int32, sub.n)
	sets := make([]float32, k*s.m)
	for round := range angles + coverages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		by := c
		if round >= angles {
			halves(pool, sets, c, s.m)
			by = sets
		}
		assign(pool, sub, by, k, ids)
		centers(pool, sub, ids, c, k)
	}
	halves(pool, sets, c, s.m)
	v := &clusters{k: k, ids: make([]int32, s.n), sets: sets}
	assign(pool, s, sets, k, v.ids)
	return v, nil
}

// assign names for every token the row of by (K, M) with the largest product, ties to the lower id.
func assign(pool *kernels.Pool, s *importances, by []float32, k int, ids []int32) {
	dots := make([]float32, min(s.n, assignAt)*k)
	for lo := 0; lo < s.n; lo += assignAt {
		n := min(assignAt, s.n-lo)
		kernels.Gemm(pool, kernels.F32Matrix(dots, n, k, k), kernels.F16Matrix(s.x[lo*s.m:], n, s.m, s.m), kernels.F32Matrix(by, k, s.m, s.m).T(), false)
		for i := range n {
			ids[lo+i] = int32(kernels.MaxIndex(dots[i*k : (i+1)*k]))
		}
	}
}

// centers sets every centroid that has members to their sum, divided by its norm; others stay.
func centers(pool *kernels.Pool, s *importances, ids []int32, c []float32, k int) {
	size := make([]int, k)
	for _, id := range ids {
		size[id]++
	}
	for id, n := range size {
		if n > 0 {
			clear(c[id*s.m : (id+1)*s.m])
		}
	}
	pool.Run(s.m, 64, func(lo, hi int) { // tokens ascending, so the sums do not depend on the threads
		v := make([]float32, hi-lo)
		for i, id := range ids {
			kernels.F16ToF32(v, s.row(i)[lo:hi])
			kernels.Add(c[int(id)*s.m+lo:int(id)*s.m+hi], v)
		}
	})
	pool.Run(k, 1, func(lo, hi int) {
		for id := lo; id < hi; id++ {
			row, sum := c[id*s.m:(id+1)*s.m], 0.0
			for _, v := range row {
				sum += float64(v) * float64(v)
			}
			if sum > 0 {
				f := float32(1 / math.Sqrt(sum))
				for j := range row {
					row[j] *= f
				}
			}
		}
	})
}

// halves sets sets (K, M) to 1 for the ⌈M/2⌉ largest of each row of c, ties to the lower neuron, and to 0 elsewhere.
func halves(pool *kernels.Pool, sets, c []float32, m int) {
	pool.Run(len(c)/m, 1, func(lo, hi int) {
		order := make([]int32, m)
		for id := lo; id < hi; id++ {
			row, set := c[id*m:(id+1)*m], sets[id*m:(id+1)*m]
			for j := range order {
				order[j] = int32(j)
			}
			slices.SortFunc(order, func(a, b int32) int {
				switch {
				case row[a] > row[b]:
					return -1
				case row[a] < row[b]:
					return 1
				}
				return int(a - b)
			})
			clear(set)
			for _, j := range order[:(m+1)/2] {
				set[j] = 1
			}
		}
	})
}
