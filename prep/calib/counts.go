package calib

import (
	"fmt"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// CountsFile is the threshold stage's output in its folder.
const CountsFile = "counts.safetensors"

// Buckets is the number of float16 magnitudes, NaNs included; bit pattern b counts in bucket b.
const Buckets = 1 << 15

// infBits is float16 infinity, where finite magnitudes beyond float16 also count.
const infBits = 0x7c00

// Counts are magnitudes counted by float16 bit pattern, per layer and projection (gate, up). They add up over shards
// and batches in any order, and hold what any density needs.
type Counts [][2][]uint64 // (N, 2, Buckets)

// NewCounts returns zeroes.
func NewCounts(layers int) Counts {
	c := make(Counts, layers)
	for l := range c {
		c[l] = [2][]uint64{make([]uint64, Buckets), make([]uint64, Buckets)}
	}
	return c
}

// Add adds o to c.
func (c Counts) Add(o Counts) {
	for l := range c {
		for p := range c[l] {
			for i, n := range o[l][p] {
				c[l][p][i] += n
			}
		}
	}
}

// Threshold is the smallest float16 t with count(v ≥ t) ≤ density·total, v the counted magnitudes rounded to float16.
// There is no interpolation: where many magnitudes are equal, either all of them pass or none. It also returns the
// density reached.
func Threshold(counts []uint64, density float64) (bits uint16, reached float64) {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0, 0
	}
	limit, above := density*float64(total), uint64(0)
	b := infBits + 1
	for b > 0 && float64(above+counts[b-1]) <= limit {
		b--
		above += counts[b]
	}
	if b > infBits {
		b = infBits // not even the infinite bucket fits: nothing but infinity is above
	}
	return uint16(b), float64(above) / float64(total)
}

// countsName is the tensor of a layer: U64 (2, Buckets).
func countsName(l int) string { return fmt.Sprintf("counts.%d", l) }

// WriteCounts writes the counters to path.
func WriteCounts(path string, c Counts, meta map[string]string) error {
	var entries []tensors.Entry
	for l := range c {
		both := append(append(make([]uint64, 0, 2*Buckets), c[l][0]...), c[l][1]...)
		entries = append(entries, tensors.U64Entry(countsName(l), []int{2, Buckets}, both))
	}
	return tensors.Write(path, entries, meta)
}

// ReadCounts reads counters of a model with that many layers.
func ReadCounts(path string, layers int) (Counts, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := make(Counts, layers)
	for l := range c {
		in, ok := f.Info(countsName(l))
		if !ok || len(in.Shape) != 2 || in.Shape[0] != 2 || in.Shape[1] != Buckets {
			return nil, format.Inputf("%s: tensor %s is missing or not U64 (2, %d)", path, countsName(l), Buckets)
		}
		both, err := f.U64(countsName(l))
		if err != nil {
			return nil, err
		}
		c[l] = [2][]uint64{both[:Buckets], both[Buckets:]}
	}
	return c, nil
}

// Thresholds are float16 bit patterns per layer: gate, up.
type Thresholds [][2]uint16

// At derives the thresholds for a density.
func (c Counts) At(density float64) Thresholds {
	t := make(Thresholds, len(c))
	for l := range c {
		for p := range c[l] {
			t[l][p], _ = Threshold(c[l][p], density)
		}
	}
	return t
}

// Value is a threshold as a number.
func (t Thresholds) Value(layer, proj int) float32 { return kernels.F16Value(t[layer][proj]) }
