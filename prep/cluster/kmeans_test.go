package cluster

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"testing"

	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/calibtest"
)

// random masks: each of n rows is one of kinds distinct random ones.
func randomMasks(n, m, kinds int, seed uint64) masks {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := (m + 63) / 64
	s := masks{data: make([]uint64, n*w), n: n, w: w, m: m}
	kind := make([]uint64, kinds*w)
	for k := range kinds {
		row := kind[k*w : (k+1)*w]
		for i := range row {
			row[i] = rng.Uint64() & rng.Uint64()
		}
		if m%64 != 0 {
			row[w-1] &= 1<<(m%64) - 1
		}
		row[0] = row[0]&^0xfffff | uint64(k) // distinct
	}
	for i := range n {
		k := i
		if i >= kinds {
			k = rng.IntN(kinds)
		}
		copy(s.row(i), kind[k*w:(k+1)*w])
	}
	return s
}

func constant(n, m int, word uint64) masks {
	w := (m + 63) / 64
	s := masks{data: make([]uint64, n*w), n: n, w: w, m: m}
	for i := range s.data {
		s.data[i] = word
		if i%w == w-1 && m%64 != 0 {
			s.data[i] &= 1<<(m%64) - 1
		}
	}
	return s
}

func cluster(t *testing.T, pool *kernels.Pool, s masks, k int) *calib.Table {
	t.Helper()
	out, err := kMajority(context.Background(), pool, s, k, rand.New(rand.NewPCG(7, 7)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// check holds a table against the definitions, by brute force.
func check(t *testing.T, s masks, k int, got *calib.Table) {
	t.Helper()
	seen := map[string]bool{}
	for i := range s.n {
		seen[fmt.Sprint(s.row(i))] = true
	}
	if want := min(k, len(seen)); got.K != want {
		t.Fatalf("K_eff = %d, want min(%d, %d distinct masks)", got.K, k, len(seen))
	}
	if len(got.Centroids) != got.K*s.w || len(got.IDs) != s.n || len(got.Counts) != got.K*s.m {
		t.Fatalf("sizes %d, %d, %d", len(got.Centroids), len(got.IDs), len(got.Counts))
	}
	used, counts := make([]int, got.K), make([]int32, got.K*s.m)
	for i := range s.n {
		best, at := 1<<30, -1
		for c := range got.K {
			d := 0
			for w := range s.w {
				d += bits.OnesCount64(s.row(i)[w] ^ got.Centroids[c*s.w+w])
			}
			if d < best {
				best, at = d, c
			}
		}
		if int(got.IDs[i]) != at {
			t.Fatalf("token %d has centroid %d, nearest is %d", i, got.IDs[i], at)
		}
		used[at]++
		for n := range s.m {
			counts[at*s.m+n] += int32(s.row(i)[n/64] >> (n % 64) & 1)
		}
	}
	different := map[string]bool{}
	for c := range got.K {
		if used[c] == 0 {
			t.Errorf("centroid %d is empty", c)
		}
		row := fmt.Sprint(got.Centroids[c*s.w : (c+1)*s.w])
		if different[row] {
			t.Errorf("centroid %d is a duplicate", c)
		}
		different[row] = true
	}
	if !reflect.DeepEqual(counts, got.Counts) {
		t.Error("member counts differ from a plain count")
	}
}

// TestDegenerate is the list of inputs on which k-means goes wrong: too few tokens, equal tokens, K at and beside the
// number of distinct masks.
func TestDegenerate(t *testing.T) {
	rare := constant(40_000, 70, 0) // more tokens than the sample; the odd ones are easily missed
	for i := range 20 {
		rare.row(39_000 + i*7)[0] = uint64(i + 1)
	}
	pool := kernels.NewPool(2)
	defer pool.Close()
	for name, c := range map[string]struct {
		s masks
		k int
	}{
		"one token":           {randomMasks(1, 100, 1, 1), 512},
		"600 equal tokens":    {constant(600, 100, 0x1234567890), 512},
		"512 distinct":        {randomMasks(2000, 130, 512, 2), 512},
		"513 distinct":        {randomMasks(2000, 130, 513, 3), 512},
		"511 distinct":        {randomMasks(2000, 130, 511, 3), 512},
		"all ones":            {constant(300, 64, ^uint64(0)), 8},
		"all ones, odd size":  {constant(300, 100, ^uint64(0)), 8},
		"all zeros":           {constant(300, 100, 0), 8},
		"one centroid":        {randomMasks(500, 100, 300, 4), 1},
		"rare masks":          {rare, 16},
		"rare masks, all":     {rare, 64},
		"one word, one bit":   {constant(10, 1, 1), 3},
		"more than a sample":  {randomMasks(34_000, 64, 3000, 5), 40},
		"many near centroids": {randomMasks(3000, 20, 3000, 6), 700},
	} {
		t.Run(name, func(t *testing.T) { check(t, c.s, c.k, cluster(t, pool, c.s, c.k)) })
	}
}

// TestPlanted asks that clusters that are there are found.
func TestPlanted(t *testing.T) {
	p := calibtest.Planted{Config: calibtest.Config(1, 8, 200), Tokens: 3000, Window: 100, Groups: 12, Noise: 0.05, Seed: 3}
	s := masks{data: p.Masks(0, 0), n: p.Tokens, w: 4, m: 200}
	got := cluster(t, nil, s, 12)
	check(t, s, 12, got)
	of := map[int]int32{}
	for i, id := range got.IDs {
		g := p.Group(i)
		if have, ok := of[g]; ok && have != id {
			t.Fatalf("token %d of group %d is in cluster %d, others in %d", i, g, id, have)
		}
		of[g] = id
	}
	if len(of) != 12 {
		t.Errorf("%d groups found", len(of))
	}
}

// TestThreads asks for the same table whatever the thread count.
func TestThreads(t *testing.T) {
	s := randomMasks(5000, 300, 5000, 9)
	want := cluster(t, nil, s, 60)
	check(t, s, 60, want)
	for _, n := range []int{1, 2, 5} {
		pool := kernels.NewPool(n)
		got := cluster(t, pool, s, 60)
		pool.Close()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads give another table", n)
		}
	}
}

// TestRefill holds the incremental reassignment against a full one.
func TestRefill(t *testing.T) {
	s := randomMasks(400, 90, 400, 11)
	cent := make([]uint64, 6*s.w)
	for c := range 6 {
		copy(cent[c*s.w:], s.row(c%2)) // four duplicates: empty
	}
	ids, dist := make([]int32, s.n), make([]int32, s.n)
	assign(nil, s, cent, ids, dist)
	for refill(nil, s, cent, ids, dist) > 0 {
	}
	ids2, dist2 := make([]int32, s.n), make([]int32, s.n)
	assign(nil, s, cent, ids2, dist2)
	if !reflect.DeepEqual(ids, ids2) || !reflect.DeepEqual(dist, dist2) {
		t.Error("refill leaves another assignment than assign")
	}
}

func TestPlanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 7, 8, 9, 16, 100, 1000} {
		data, rows := make([]uint64, 3*max(n, 1)), make([]int32, n)
		for i := range data {
			data[i] = rng.Uint64() | rng.Uint64()
		}
		want := make([]int32, 64)
		for i := range rows {
			rows[i] = int32(rng.IntN(n))
			for b := range want {
				want[b] += int32(data[1+int(rows[i])*3] >> b & 1)
			}
		}
		var p planes
		p.add(data[1:], 3, rows)
		got := make([]int32, 64)
		p.unpack(got)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d rows: %v, want %v", n, got, want)
		}
		for _, limit := range []int{0, n / 2, n * 3 / 4, n} {
			for b, v := range want {
				if on := p.above(limit)>>b&1 == 1; on != (int(v) > limit) {
					t.Fatalf("%d rows: counter %d = %d above %d: %v", n, b, v, limit, on)
				}
			}
		}
	}
}
