package calib

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"neuroprefetcher/kernels"
)

// sorted is the definition of a threshold by sorting: the smallest float16 t with count(v ≥ t) ≤ density·total.
func sorted(v []float32, density float64) float32 {
	v = slices.Clone(v)
	for i, x := range v {
		v[i] = kernels.F16Value(kernels.F16Bits(x))
	}
	slices.Sort(v)
	for b := range uint16(infBits + 1) {
		t := kernels.F16Value(b)
		at, _ := slices.BinarySearch(v, t)
		if float64(len(v)-at) <= density*float64(len(v)) {
			return t
		}
	}
	return float32(math.Inf(1))
}

func TestThreshold(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	draw := map[string]func() float32{
		"normal":      func() float32 { return float32(math.Abs(rng.NormFloat64())) },
		"wide":        func() float32 { return float32(math.Exp(20 * rng.NormFloat64())) }, // many beyond float16
		"all zero":    func() float32 { return 0 },
		"all equal":   func() float32 { return 1.5 },
		"few values":  func() float32 { return float32(rng.IntN(4)) },
		"subnormal":   func() float32 { return float32(rng.IntN(20)) * 0x1p-25 },
		"first zeros": func() float32 { return float32(math.Max(0, rng.NormFloat64())) },
	}
	for name, f := range draw {
		for _, n := range []int{1, 2, 3, 10, 1000} {
			v := make([]float32, n)
			for i := range v {
				v[i] = f()
			}
			counts := make([]uint64, Buckets)
			kernels.CountMagnitudes(counts, v)
			for _, density := range []float64{0, 0.1, 0.25, 0.4, 0.5, 0.75, 0.999, 1} {
				bits, reached := Threshold(counts, density)
				got, want := kernels.F16Value(bits), sorted(v, density)
				if got != want {
					t.Errorf("%s, %d values, density %v: threshold %v, want %v", name, n, density, got, want)
				}
				above := 0
				for _, x := range v {
					if kernels.F16Value(kernels.F16Bits(x)) >= got {
						above++
					}
				}
				// Magnitudes that are infinite in float16 pass even where the density has no room for them.
				if reached > density && !(math.IsInf(float64(got), 1)) || !math.IsInf(float64(got), 1) && reached != float64(above)/float64(n) {
					t.Errorf("%s, %d values, density %v: reached %v, %d above", name, n, density, reached, above)
				}
			}
		}
	}
}

// TestLargeCounts adds ones past the point where float32 counters stop.
func TestLargeCounts(t *testing.T) {
	counts := make([]uint64, Buckets)
	one := kernels.F16Bits(1)
	counts[one], counts[one+1] = 1<<24+1, 1<<24
	if b, _ := Threshold(counts, 0.5); b != one+1 {
		t.Errorf("threshold bits %#x, want %#x", b, one+1)
	}
	counts[one]--
	counts[one+1]++
	if b, _ := Threshold(counts, 0.5); b != one+2 {
		t.Errorf("threshold bits %#x, want %#x", b, one+2)
	}
}

func TestCountsFile(t *testing.T) {
	a, b := NewCounts(2), NewCounts(2)
	a[0][1][5], b[0][1][5], b[1][0][Buckets-1] = 3, 1<<40, 9
	a.Add(b)
	path := filepath.Join(t.TempDir(), CountsFile)
	if err := WriteCounts(path, a, nil); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCounts(path, 2)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("counts read differ from those written: %v", err)
	}
	if _, err := ReadCounts(path, 3); err == nil {
		t.Error("counts of two layers were read as three")
	}
}

func TestWindows(t *testing.T) {
	ws := Cut(1000, 300)
	if want := []Window{{0, 300}, {300, 300}, {600, 300}, {900, 100}}; !reflect.DeepEqual(ws, want) {
		t.Errorf("Cut: %v", ws)
	}
	if got := Spread(ws, 2); !reflect.DeepEqual(got, []Window{ws[0], ws[2]}) {
		t.Errorf("Spread: %v", got)
	}
	if got := Spread(ws, 9); !reflect.DeepEqual(got, ws) {
		t.Errorf("Spread of more than there are: %v", got)
	}
	if got := Groups(ws, 600); !reflect.DeepEqual(got, [][]Window{ws[:2], ws[2:]}) {
		t.Errorf("Groups: %v", got)
	}
	if got := Groups(ws, 1); len(got) != 4 {
		t.Errorf("Groups of one window: %v", got)
	}
	if Tokens(ws) != 1000 {
		t.Errorf("Tokens: %d", Tokens(ws))
	}
}
