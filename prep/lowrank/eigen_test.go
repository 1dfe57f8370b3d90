package lowrank

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// spectral builds a matrix of the given eigenvalues in a random basis.
func spectral(values []float64, seed uint64) *mat.SymDense {
	n := len(values)
	rng := rand.New(rand.NewPCG(seed, 2))
	q := mat.NewDense(n, n, nil)
	for i := range n {
		for j := range n {
			q.Set(i, j, rng.NormFloat64())
		}
	}
	orthonormal(q)
	var qd, k mat.Dense
	qd.Apply(func(_, j int, v float64) float64 { return v * values[j] }, q)
	k.Mul(&qd, q.T())
	return Symmetric(&k)
}

// TestLeading holds the Krylov space against the whole problem: what the vectors explain, their orthonormality, and the
// vectors themselves where the eigenvalues are far apart.
func TestLeading(t *testing.T) {
	const n = 400
	falling := func(f func(i float64) float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = f(float64(i))
		}
		return v
	}
	for name, x := range map[string]struct {
		values []float64
		apart  bool
	}{
		"geometric":  {falling(func(i float64) float64 { return math.Pow(0.7, i) }), true},
		"power law":  {falling(func(i float64) float64 { return 1 / (1 + i) }), false},
		"slow":       {falling(func(i float64) float64 { return 1 / math.Sqrt(1+i) }), false},
		"flat":       {falling(func(i float64) float64 { return 1 }), false},
		"low rank":   {falling(func(i float64) float64 { return max(0, 5-i) }), false},
		"zero":       {make([]float64, n), false},
		"great span": {falling(func(i float64) float64 { return math.Pow(10, -i/8) }), false},
	} {
		k := spectral(x.values, 3)
		for _, r := range []int{5, 64} {
			values, u, err := Leading(k, r)
			if err != nil {
				t.Fatal(err)
			}
			var uu, ku, uku mat.Dense
			uu.Mul(u.T(), u)
			ku.Mul(k, u)
			uku.Mul(u.T(), &ku)
			got, want := 0.0, 0.0
			for i := range r {
				got, want = got+uku.At(i, i), want+x.values[i]
				for j := range r {
					one := 0.0
					if i == j {
						one = 1
					}
					if math.Abs(uu.At(i, j)-one) > 1e-9 {
						t.Fatalf("%s, rank %d: columns %d and %d are not orthonormal: %v", name, r, i, j, uu.At(i, j))
					}
				}
				if math.Abs(uku.At(i, i)-values[i]) > 1e-9*x.values[0] {
					t.Errorf("%s, rank %d: value %d is %v, the vector explains %v", name, r, i, values[i], uku.At(i, i))
				}
			}
			if miss := 1 - got/want; want > 0 && miss > 1e-3 {
				t.Errorf("%s, rank %d: explains %v, the best are %v", name, r, got, want)
			}
			for i := 1; i < r; i++ {
				if values[i] > values[i-1] {
					t.Errorf("%s, rank %d: value %d is above the one before", name, r, i)
				}
			}
		}
		if !x.apart {
			continue
		}
		const r = 16
		_, got, err := Leading(k, r)
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := eigen(k)
		if err != nil {
			t.Fatal(err)
		}
		for j := range r / 2 {
			dot := 0.0
			for i := range n {
				dot += got.At(i, j) * want.At(i, j)
			}
			if math.Abs(dot) < 1-1e-6 {
				t.Errorf("%s: vector %d has cosine %v", name, j, dot)
			}
		}
	}
}

// TestLeadingIsDeterministic asks for the same bits twice.
func TestLeadingIsDeterministic(t *testing.T) {
	v := make([]float64, 400)
	for i := range v {
		v[i] = 1 / float64(i+1)
	}
	k := spectral(v, 5)
	_, a, err := Leading(k, 20)
	if err != nil {
		t.Fatal(err)
	}
	_, b, _ := Leading(k, 20)
	if !mat.Equal(a, b) {
		t.Error("other vectors")
	}
}

// BenchmarkLeading is one projection's eigenproblem at H = 1,024 and a quarter of its rank.
func BenchmarkLeading(b *testing.B) {
	const h = 1024
	rng := rand.New(rand.NewPCG(1, 1))
	a := mat.NewDense(h, h, nil)
	for i := range h {
		for j := range h {
			a.Set(i, j, rng.NormFloat64()/math.Sqrt(float64(1+j)))
		}
	}
	var p mat.Dense
	p.Mul(a, a.T())
	k := Symmetric(&p)
	for b.Loop() {
		if _, _, err := Leading(k, h/8); err != nil {
			b.Fatal(err)
		}
	}
}
