package predictor

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

const mixRank = 3

// factor adds a random factor of 4-bit codes and returns its values (rows, cols).
func (m member) factor(name string, rows, cols int, rng *rand.Rand) []float64 {
	pad := padded(cols)
	codes, scales, v := make([]byte, rows*pad/2), make([]uint16, rows*pad/32), make([]float64, rows*cols)
	row := make([]int8, pad)
	for r := range rows {
		for g := range pad / 32 {
			scales[r*pad/32+g] = kernels.F16Bits(0.05 + 0.1*rng.Float32())
		}
		clear(row)
		for c := range cols {
			row[c] = int8(rng.IntN(15) - 7)
			v[r*cols+c] = float64(row[c]) * float64(kernels.F16Value(scales[r*pad/32+c/32]))
		}
		kernels.PackQ4(codes[r*pad/2:(r+1)*pad/2], row)
	}
	m[name] = tensors.Entry{Name: name, DType: "U8", Shape: []int{rows, pad / 2}, Write: func(w io.Writer) error {
		_, err := w.Write(codes)
		return err
	}}
	m[FactorScales(name)] = tensors.F16Entry(FactorScales(name), []int{rows, pad / 32}, scales)
	return v
}

// scoreRows is a file of score rows for gate and up, and its values.
func scoreRows() (member, map[string][]float64) {
	rng, m, v := rand.New(rand.NewPCG(9, 9)), member{}, map[string][]float64{}
	for l := 1; l < small.Layers; l++ {
		for p, k := range []int{gateK, upK} {
			v[MixName(Projections[p], l)] = m.factor(MixName(Projections[p], l), mixRank, k, rng)
			v[RowName(Projections[p], l)] = m.factor(RowName(Projections[p], l), small.Intermediate, mixRank, rng)
		}
		m.f16(BaseName(l), 1, small.Intermediate, rng)
		e := m[BaseName(l)]
		e.Shape = []int{small.Intermediate}
		m[BaseName(l)] = e
	}
	return m, v
}

// TestMixture holds the scores against sums in float64 over the softmax of the network's logits, certain ids against
// single rows, and one thread against three.
func TestMixture(t *testing.T) {
	rows, v := scoreRows()
	cm, _, _ := centroids()
	net, cent, path := network().write(t, "p"), cm.write(t, "c"), rows.write(t, "r")
	s, err := LoadPaperPlus(net, path, cent, small, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := LoadPredictor(net, small, 1)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	x := func() []float32 {
		y := make([]float32, small.Hidden)
		for i := range y {
			y[i] = float32(rng.NormFloat64())
		}
		return y
	}
	ft := &Features{Embed: x(), AttnOut: x(), MLPIn: x(), Resid: x(), Gate0: 2}
	p.Predict(nil, ft, make([]int32, 2), make([]int32, 2))
	pool := kernels.NewPool(3)
	defer pool.Close()
	s.Observe(pool, ft)
	score := func(l int, prob [2][]float64) []float64 {
		half, err := f.F16(BaseName(l))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float64, small.Intermediate)
		for n := range want {
			want[n] = float64(kernels.F16Value(half[n]))
			for i := range prob {
				mix, row := v[MixName(Projections[i], l)], v[RowName(Projections[i], l)]
				k, inner := len(prob[i]), make([]float64, mixRank)
				for c, q := range Round8(prob[i]) {
					for r := range inner {
						inner[r] += mix[r*k+c] * q
					}
				}
				for r, z := range Round8(inner) {
					want[n] += row[n*mixRank+r] * z
				}
			}
		}
		return want
	}
	check := func(l int, want []float64) {
		t.Helper()
		got := make([]float32, small.Intermediate)
		s.Scores(l, got)
		for n := range got {
			if math.Abs(float64(got[n])-want[n]) > 1e-5*(1+math.Abs(want[n])) {
				t.Fatalf("layer %d, neuron %d: %v, want %v", l, n, got[n], want[n])
			}
		}
	}
	for l := 1; l < small.Layers; l++ {
		var prob [2][]float64
		for i := range prob {
			sum := 0.0
			for _, y := range p.Logits(i, l) {
				prob[i] = append(prob[i], math.Exp(float64(y)))
				sum += math.Exp(float64(y))
			}
			for c := range prob[i] {
				prob[i][c] /= sum
			}
		}
		check(l, score(l, prob))
	}
	one := make([]float32, small.Intermediate)
	s.Scores(2, one)
	s.Observe(nil, ft)
	again := make([]float32, small.Intermediate)
	s.Scores(2, again)
	for n := range one {
		if one[n] != again[n] {
			t.Fatal("other scores with one thread")
		}
	}
	s.SetIDs(1, []int32{3, 1})
	check(1, score(1, [2][]float64{{0, 0, 0, 1, 0}, {0, 1, 0, 0}}))
	if got := s.Pins(2); len(got) != 3 || got[0] != 2 {
		t.Errorf("pins %v", got)
	}

	// the right ids are the paper's
	c, err := LoadCentroids(cent, small, 1)
	if err != nil {
		t.Fatal(err)
	}
	g, u := make([]float32, small.Intermediate), make([]float32, small.Intermediate)
	for n := range g {
		g[n], u[n] = float32(4*rng.NormFloat64()), float32(4*rng.NormFloat64())
	}
	a, b := make([]int32, 2), make([]int32, 2)
	s.RightIDs(2, g, u, nil, a)
	c.RightIDs(2, g, u, b)
	if a[0] != b[0] || a[1] != b[1] || s.Tables() != 2 {
		t.Errorf("right ids %v, the paper's %v", a, b)
	}
}

// TestRightIDs counts shared neurons one by one.
func TestRightIDs(t *testing.T) {
	m, masks, _ := centroids()
	c, err := LoadCentroids(m.write(t, "c"), small, 1)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(6, 6))
	g, u := make([]float32, small.Intermediate), make([]float32, small.Intermediate)
	for range 20 {
		for n := range g {
			g[n], u[n] = float32(6*rng.NormFloat64()), float32(6*rng.NormFloat64())
		}
		ids := make([]int32, 2)
		c.RightIDs(1, g, u, ids)
		for p, k := range []int{gateK, upK} {
			best, most := 0, -1
			for id := range k {
				n := 0
				for j := range g {
					on := u[j] >= 3 || u[j] <= -3
					if p == 0 {
						x := float64(g[j])
						on = math.Abs(x/(1+math.Exp(-x))) >= 2
					}
					if on && masks[TableName(p, 1)][id*Words(len(g))+j/64]>>(j%64)&1 == 1 {
						n++
					}
				}
				if n > most {
					best, most = id, n
				}
			}
			if ids[p] != int32(best) {
				t.Fatalf("projection %d: id %d, want %d", p, ids[p], best)
			}
		}
	}
}

func TestMixtureRefuses(t *testing.T) {
	cm, _, _ := centroids()
	cent := cm.write(t, "c")
	for name, x := range map[string]struct {
		change func(net, rows member)
		want   string
	}{
		"no base":          {func(_, r member) { delete(r, BaseName(2)) }, BaseName(2)},
		"no mix":           {func(_, r member) { delete(r, MixName("up", 1)) }, MixName("up", 1)},
		"rows of another":  {func(_, r member) { r.factor(RowName("gate", 1), 10, mixRank, rand.New(rand.NewPCG(1, 1))) }, RowName("gate", 1)},
		"mix of another K": {func(_, r member) { r.factor(MixName("gate", 2), mixRank, 64, rand.New(rand.NewPCG(1, 1))) }, MixName("gate", 2)},
		"a base that is infinite": {func(_, r member) {
			r[BaseName(1)] = tensors.F16Entry(BaseName(1), []int{150}, append(make([]uint16, 149), 0x7c00))
		}, "element 149"},
		"another layer 0": {func(n, _ member) { n.f16(Gate0Name, k0+1, dim, rand.New(rand.NewPCG(1, 1))) }, "centroids of layer 0"},
		"fewer layers":    {func(_, r member) { delete(r, BaseName(1)) }, "layers from 2 on"},
		"heads of fewer":  {func(n, _ member) { delete(n, HeadName(0, 1)) }, "layers from 2 on"},
	} {
		rows, _ := scoreRows()
		net := network()
		x.change(net, rows)
		if _, err := LoadPaperPlus(net.write(t, "p"), rows.write(t, "r"), cent, small, 1); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
