package regress

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Text of one repeated token gives moments whose variances are rounding alone. The map is then the mean.
func TestConstantInputGivesTheMean(t *testing.T) {
	const h, m, rank = 24, 40, 6
	r := rand.New(rand.NewPCG(3, 4))
	meanX, meanT := make([]float64, h), make([]float64, h)
	for i := range h {
		meanX[i], meanT[i] = r.NormFloat64(), r.NormFloat64()
	}
	noisy := func(a, b []float64) []float64 {
		out := make([]float64, h*h)
		for i := range h {
			for j := range h {
				// accumulated in float32; symmetric where a and b are the same
				k := rand.New(rand.NewPCG(uint64(min(i, j)), uint64(max(i, j))))
				out[i*h+j] = a[i]*b[j] + 1e-7*math.Abs(a[i]*b[j])*(k.NormFloat64()+1)
			}
		}
		return out
	}
	p, err := newProblem(nil, h, noisy(meanX, meanX), meanX, noisy(meanT, meanT), meanT, noisy(meanX, meanT))
	if err != nil {
		t.Fatal(err)
	}
	w := make([]float32, m*h)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	weight := make([]float64, m)
	for i := range weight {
		weight[i] = 1
	}
	o := p.output(w)
	f, err := p.solve(o, weight, rank, quantise)
	if err != nil {
		t.Fatal(err)
	}
	in, out := f.in.Values(), f.out.Values()
	for j := range m {
		y := f.offset[j]
		for k := range rank {
			z := 0.0
			for i := range h {
				z += in[k*h+i] * meanX[i] * p.invDev[i]
			}
			y += out[j*rank+k] * z
		}
		if !(math.Abs(y-o.mean[j]) < 1e-3) {
			t.Errorf("output %d at the mean is %v, its mean %v", j, y, o.mean[j])
		}
	}
}
