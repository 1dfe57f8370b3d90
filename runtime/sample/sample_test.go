package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// reference is the definition in float64: the whole distribution, with full sorts and nothing shared with the sampler.
func reference(p Params, logits []float32, history []int32) []float64 {
	n := len(logits)
	l := make([]float64, n)
	inHistory := map[int32]bool{}
	for _, id := range history {
		inHistory[id] = true
	}
	for i := range l {
		l[i] = float64(logits[i])
		if p.RepetitionPenalty != 0 && inHistory[int32(i)] {
			if l[i] > 0 {
				l[i] /= p.RepetitionPenalty
			} else {
				l[i] *= p.RepetitionPenalty
			}
			l[i] = float64(float32(l[i]))
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return l[order[a]] > l[order[b]] })
	out := make([]float64, n)
	if p.Temp == 0 {
		out[order[0]] = 1
		return out
	}
	if p.TopK > 0 && p.TopK < n {
		order = order[:p.TopK]
	}
	softmax := func() []float64 {
		w := make([]float64, len(order))
		sum := 0.0
		for i, id := range order {
			w[i] = math.Exp((l[id] - l[order[0]]) / p.Temp)
			sum += w[i]
		}
		for i := range w {
			w[i] /= sum
		}
		return w
	}
	if p.TopP > 0 && p.TopP < 1 {
		mass, keep := 0.0, 0
		for _, w := range softmax() {
			if keep > 0 && mass >= p.TopP {
				break
			}
			mass += w
			keep++
		}
		order = order[:keep]
	}
	w := softmax()
	keep := len(order)
	for keep > 1 && w[keep-1] < p.MinP*w[0] {
		keep--
	}
	order = order[:keep]
	for i, v := range softmax() {
		out[order[i]] = v
	}
	return out
}

func randomLogits(r *rand.Rand, n int) []float32 {
	l := make([]float32, n)
	for i := range l {
		l[i] = float32(r.NormFloat64() * 3)
	}
	return l
}

var cases = []Params{
	{Temp: 1}, {Temp: 0.7}, {Temp: 2.5}, {Temp: 1, TopK: 1}, {Temp: 1, TopK: 5}, {Temp: 1, TopP: 0.9}, {Temp: 0.8, TopP: 0.3}, {Temp: 1, MinP: 0.1},
	{Temp: 1.3, TopK: 20, TopP: 0.8, MinP: 0.05}, {Temp: 1, RepetitionPenalty: 1.3}, {Temp: 0.9, TopK: 12, TopP: 0.95, RepetitionPenalty: 0.7}, {Temp: 1, TopK: 1000, TopP: 1, MinP: 1},
}

func TestDistributionExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range cases {
		for range 50 {
			n := 1 + r.IntN(80)
			logits := randomLogits(r, n)
			if r.IntN(3) == 0 { // ties
				for i := range logits {
					logits[i] = float32(math.Round(float64(logits[i])))
				}
			}
			history := []int32{-1, 0, int32(r.IntN(n)), 0, 1 << 20, int32(r.IntN(n))}
			s, err := New(p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sample(logits, history); err != nil {
				t.Fatal(err)
			}
			got := make([]float64, n)
			total := 0.0
			for _, w := range s.prob {
				total += w
			}
			for i, id := range s.kept {
				got[id] = s.prob[i] / total
			}
			for i, want := range reference(p, logits, history) {
				if math.Abs(got[i]-want) > 1e-12 {
					t.Fatalf("%+v n=%d token %d: probability %g, want %g", p, n, i, got[i], want)
				}
			}
		}
	}
}

// TestChiSquare draws with fixed seeds and compares counts with exact probabilities.
func TestChiSquare(t *testing.T) {
	const draws = 40_000
	r := rand.New(rand.NewPCG(3, 4))
	for i, p := range cases {
		p.Seed = uint64(i) + 100
		logits := randomLogits(r, 40)
		history := []int32{3, 7, 7, 39}
		want := reference(p, logits, history)
		s, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		count := make([]int, len(logits))
		for range draws {
			id, err := s.Sample(logits, history)
			if err != nil {
				t.Fatal(err)
			}
			count[id]++
		}
		chi, cells := 0.0, 0
		restWant, restGot := 0.0, 0
		for id, w := range want {
			if w == 0 && count[id] > 0 {
				t.Fatalf("%+v: token %d drawn %d times with probability 0", p, id, count[id])
			}
			if e := w * draws; e >= 5 {
				d := float64(count[id]) - e
				chi += d * d / e
				cells++
			} else {
				restWant += e
				restGot += count[id]
			}
		}
		if restWant > 0 {
			d := float64(restGot) - restWant
			chi += d * d / max(restWant, 1)
			cells++
		}
		df := float64(cells - 1)
		if limit := df + 4*math.Sqrt(2*df) + 8; chi > limit { // about one in 10⁵ by chance
			t.Errorf("%+v: chi-square %.1f with %d degrees of freedom, limit %.1f", p, chi, cells-1, limit)
		}
	}
}

func TestGreedyTiesToLowerID(t *testing.T) {
	s, _ := New(Params{})
	if id, err := s.Sample([]float32{1, 5, 5, 2}, nil); id != 1 || err != nil {
		t.Fatalf("got %d, %v", id, err)
	}
	s, _ = New(Params{RepetitionPenalty: 2})
	if id, err := s.Sample([]float32{1, 5, 5, 2}, []int32{1}); id != 2 || err != nil {
		t.Fatalf("got %d, %v", id, err)
	}
	if id, err := s.Sample([]float32{-1, -0.75}, []int32{1, 1}); id != 0 || err != nil { // −0.75·2 < −1; once, though it comes twice
		t.Fatalf("got %d, %v", id, err)
	}
}

func TestSeedDecides(t *testing.T) {
	logits := randomLogits(rand.New(rand.NewPCG(5, 6)), 500)
	draw := func(seed uint64) (ids [64]int32) {
		s, _ := New(Params{Temp: 1, TopP: 0.99, Seed: seed})
		for i := range ids {
			ids[i], _ = s.Sample(logits, nil)
		}
		return ids
	}
	first, again := draw(1), draw(1)
	if first != again {
		t.Error("one seed gave two sequences")
	}
	if first == draw(2) {
		t.Error("two seeds gave one sequence")
	}
}

func TestNonFinite(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, p := range []Params{{}, {Temp: 1}} {
			s, _ := New(p)
			if _, err := s.Sample([]float32{0, 1, bad}, nil); !errors.Is(err, ErrNonFinite) {
				t.Errorf("%g: got %v", bad, err)
			}
		}
	}
	s, _ := New(Params{})
	if _, err := s.Sample(nil, nil); err == nil {
		t.Error("no logits accepted")
	}
}

func TestExtremeLogits(t *testing.T) {
	for _, p := range []Params{{Temp: 1e-6}, {Temp: 1e6}, {Temp: 1e-6, TopP: 0.5}, {Temp: 1, TopK: 2, RepetitionPenalty: 1000}} {
		s, _ := New(p)
		for range 100 {
			id, err := s.Sample([]float32{math.MaxFloat32, -math.MaxFloat32, 0}, []int32{0, 1})
			if err != nil || id < 0 || id > 2 {
				t.Fatalf("%+v: %d, %v", p, id, err)
			}
		}
	}
}

func TestParamsRefused(t *testing.T) {
	nan := math.NaN()
	for _, p := range []Params{{Temp: -1}, {Temp: nan}, {Temp: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {TopP: nan}, {MinP: -0.1}, {MinP: 2}, {RepetitionPenalty: -1}, {RepetitionPenalty: nan}} {
		if _, err := New(p); err == nil {
			t.Errorf("%+v accepted", p)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	logits := randomLogits(rand.New(rand.NewPCG(7, 8)), 5000)
	history := []int32{1, 2, 3}
	for _, p := range cases {
		s, _ := New(p)
		s.Sample(logits, history)
		if n := testing.AllocsPerRun(20, func() { s.Sample(logits, history) }); n != 0 {
			t.Errorf("%+v: %g allocations per token", p, n)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	logits := randomLogits(rand.New(rand.NewPCG(9, 10)), 49152)
	for name, p := range map[string]Params{"greedy": {}, "temp": {Temp: 1}, "topk40-topp95": {Temp: 0.8, TopK: 40, TopP: 0.95}, "topp95": {Temp: 0.8, TopP: 0.95}} {
		b.Run(name, func(b *testing.B) {
			s, _ := New(p)
			for b.Loop() {
				s.Sample(logits, nil)
			}
		})
	}
}
