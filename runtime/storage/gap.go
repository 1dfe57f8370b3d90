package storage

import (
	"math/rand/v2"
	"time"
)

// The measurement of the gap: rounds of small and of large random reads, both probeReads deep.
const (
	probeSmall  = 4 << 10
	probeLarge  = 64 << 10
	probeReads  = 32
	probeRounds = 4
	probeBudget = 50 * time.Millisecond // a slow drive is not kept busy longer than about this
	probeFile   = 16 << 20              // smaller files say nothing
	maxMeasured = 256 << 10
)

// measureGap finds how many unwanted bytes cost as much as one read more. With n reads in flight, a read of s bytes takes
// a + b·s of the drive's time; two sizes give a and b, and the gap is a/b. Where that cannot be had cheaply (page cache, small
// file, odd alignment) DefaultGap stands.
func (r *Reader) measureGap() error {
	gap := DefaultGap
	if r.info.Direct && r.Size() >= probeFile && probeSmall%r.info.Align == 0 {
		measured, ok, err := r.probeGap()
		if err != nil {
			return err
		}
		if ok {
			gap = measured
		}
	}
	r.plan.gap, r.info.Gap = int64(gap), gap // no batch is queued: the loop sees it with the next one
	wanted := r.stats.wanted.Load()
	r.stats.wanted.Add(-wanted)
	return r.makeSink()
}

func (r *Reader) probeGap() (gap int, ok bool, err error) {
	mem, free, err := AllocAligned(probeReads * probeLarge)
	if err != nil {
		return 0, false, err
	}
	defer free()
	b := &Batch{Items: make([]Item, probeReads), InPlace: true}
	round := func(size int) (time.Duration, error) {
		for i := range b.Items {
			off := rand.Int64N(r.Size()/probeLarge) * probeLarge
			b.Items[i] = Item{off, mem[i*probeLarge:][:size]}
		}
		start := time.Now()
		r.Submit(b)
		err := r.Wait(b)
		return time.Since(start), err
	}
	start := time.Now()
	small, large := time.Duration(1<<62), time.Duration(1<<62)
	for k := 0; k < probeRounds && (k == 0 || time.Since(start) < probeBudget); k++ {
		s, err := round(probeSmall)
		if err != nil {
			return 0, false, err
		}
		l, err := round(probeLarge)
		if err != nil {
			return 0, false, err
		}
		small, large = min(small, s), min(large, l) // the least disturbed
	}
	perByte := float64(large-small) / (probeReads * (probeLarge - probeSmall))
	if perByte <= 0 {
		return 0, false, nil
	}
	perRead := float64(small)/probeReads - perByte*probeSmall
	return int(min(max(perRead/perByte, 0), maxMeasured)) &^ 511, true, nil
}
