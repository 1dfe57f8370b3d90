package predictor

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// The small model of these tests: 3 layers, 150 neurons (two words and a bit), tables of 5 and 4 centroids.
var small = &checkpoint.Config{Layers: 3, Hidden: 24, Intermediate: 150}

const (
	gateK, upK, k0, dim = 5, 4, 6, 16
	threshold0          = 0.25
)

type member map[string]tensors.Entry

func (m member) write(t *testing.T, name string) string {
	t.Helper()
	var entries []tensors.Entry
	for _, e := range m {
		entries = append(entries, e)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := tensors.Write(path, entries, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m member) u64(name string, k int, v []uint64) {
	m[name] = tensors.U64Entry(name, []int{k, len(v) / k}, v)
}
func (m member) f32(name string, v []float32, shape ...int) {
	m[name] = tensors.F32Entry(name, shape, v)
}
func (m member) f16(name string, rows, cols int, rng *rand.Rand) {
	v := make([]uint16, rows*cols)
	for i := range v {
		v[i] = kernels.F16Bits(float32(rng.NormFloat64()))
	}
	m[name] = tensors.F16Entry(name, []int{rows, cols}, v)
}

func randomMask(rng *rand.Rand, k int) []uint64 {
	w := Words(small.Intermediate)
	v := make([]uint64, k*w)
	for i := range v {
		v[i] = rng.Uint64()
		if i%w == w-1 {
			v[i] &= 1<<(small.Intermediate%64) - 1
		}
	}
	return v
}

func randomRow(rng *rand.Rand) []float32 {
	v := make([]float32, small.Intermediate)
	for i := range v {
		v[i] = rng.Float32()
	}
	return v
}

// centroids is a centroids member and what is in it.
func centroids() (m member, masks map[string][]uint64, rows map[string][]float32) {
	rng := rand.New(rand.NewPCG(1, 1))
	m, masks, rows = member{}, map[string][]uint64{}, map[string][]float32{}
	m.f32(ThresholdName, []float32{threshold0, 1, 2, 3, 4, 5}, 3, 2)
	masks[Layer0Name] = randomMask(rng, k0)
	m.u64(Layer0Name, k0, masks[Layer0Name])
	for l := 1; l < small.Layers; l++ {
		for p, k := range []int{gateK, upK} {
			masks[TableName(p, l)] = randomMask(rng, k)
			m.u64(TableName(p, l), k, masks[TableName(p, l)])
			rows[FreqName(p, l)] = randomRow(rng)
			m.f32(FreqName(p, l), rows[FreqName(p, l)], small.Intermediate)
		}
		rows[StaticName(l)] = randomRow(rng)
		m.f32(StaticName(l), rows[StaticName(l)], small.Intermediate)
		m[PinsName(l)] = tensors.I32Entry(PinsName(l), []int{3}, []int32{int32(l), 70, 149})
	}
	return m, masks, rows
}

func network() member {
	rng := rand.New(rand.NewPCG(2, 2))
	m := member{}
	ones := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = 1 + 0.1*float32(rng.NormFloat64())
		}
		return v
	}
	for j := range FeatureNames {
		m.f16(ProjName(j), dim, small.Hidden, rng)
	}
	m.f16(Gate0Name, k0, dim, rng)
	for i := range Blocks {
		m.f32(BlockNormName(i), ones(dim), dim)
		m.f16(BlockW1Name(i), Expand*dim, dim, rng)
		m.f16(BlockW2Name(i), dim, Expand*dim, rng)
	}
	m.f32(FinalName, ones(dim), dim)
	for l := 1; l < small.Layers; l++ {
		for p, k := range []int{gateK, upK} {
			m.f16(HeadName(p, l), k, dim, rng)
			m.f32(BiasName(p, l), ones(k), k)
		}
	}
	return m
}

func token(rng *rand.Rand) *Features {
	v := func() []float32 {
		x := make([]float32, small.Hidden)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	return &Features{Embed: v(), AttnOut: v(), MLPIn: v(), Resid: v(), Gate0: int32(rng.IntN(k0))}
}

// TestPaper checks the scores against their definition for the ids that the network named, from any first layer, with
// any thread count, and that a token allocates nothing.
func TestPaper(t *testing.T) {
	m, masks, rows := centroids()
	cPath, pPath := m.write(t, "centroids"), network().write(t, "predictor.safetensors")
	w := Words(small.Intermediate)
	ids := map[int][][2]int32{}
	for _, first := range []int{0, 1, 2} {
		for _, threads := range []int{1, 2, 3} {
			c, err := LoadCentroids(cPath, small, first)
			if err != nil {
				t.Fatal(err)
			}
			p, err := LoadPredictor(pPath, small, first)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewPaper(p, c)
			if err != nil {
				t.Fatal(err)
			}
			var sel Selector = s
			pool := kernels.NewPool(threads)
			rng := rand.New(rand.NewPCG(4, 4))
			dst := make([]float32, small.Intermediate)
			for tok := range 10 {
				sel.Observe(pool, token(rng))
				for l := max(1, first); l < small.Layers; l++ {
					g, u := s.IDs(l)
					if len(ids[l]) <= tok {
						ids[l] = append(ids[l], [2]int32{g, u})
					} else if ids[l][tok] != [2]int32{g, u} {
						t.Errorf("first %d, %d threads, token %d layer %d: ids %d, %d, else %v", first, threads, tok, l, g, u, ids[l][tok])
					}
					sel.Scores(l, dst)
					for n, got := range dst {
						want := rows[FreqName(0, l)][n] * rows[FreqName(1, l)][n]
						gm, um := masks[TableName(0, l)][int(g)*w:], masks[TableName(1, l)][int(u)*w:]
						if gm[n/64]&um[n/64]>>(n%64)&1 == 1 {
							want += 2
						}
						if got != want {
							t.Fatalf("layer %d neuron %d: score %v, want %v", l, n, got, want)
						}
					}
					if want := []int32{int32(l), 70, 149}; !reflect.DeepEqual(sel.Pins(l), want) {
						t.Errorf("pins %v, want %v", sel.Pins(l), want)
					}
				}
			}
			f, gate := token(rng), randomRow(rng)
			if n := testing.AllocsPerRun(20, func() {
				f.Gate0 = s.Gate0(gate)
				sel.Observe(pool, f)
				sel.Scores(2, dst)
			}); n > 0 {
				t.Errorf("%v allocations per token", n)
			}
			if sel.Bytes() <= 0 || sel.Name() != "paper" || !sel.NeedsLayer0() {
				t.Error("what the selector says of itself")
			}
			pool.Close()
		}
	}
	if different := ids[1][0] != ids[1][1] || ids[1][1] != ids[1][2] || ids[2][0] != ids[2][1]; !different {
		t.Error("every token gets the same ids: the test shows nothing")
	}
}

// TestGate0 checks threshold, nearest centroid and ties against the definition.
func TestGate0(t *testing.T) {
	m, masks, _ := centroids()
	w := Words(small.Intermediate)
	table := masks[Layer0Name]
	copy(table[4*w:5*w], table[1*w:2*w]) // a tie: 1 and 4 are equal
	c, err := LoadCentroids(m.write(t, "centroids"), small, 0)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 40 {
		gate := make([]float32, small.Intermediate)
		for n := range gate {
			gate[n] = float32(rng.NormFloat64())
			if i < k0 { // exactly centroid i
				gate[n] = -30
				if table[i*w+n/64]>>(n%64)&1 == 1 {
					gate[n] = 3
				}
			}
		}
		best, at := 1<<30, 0
		for k := range k0 {
			d := 0
			for n, g := range gate {
				v := float64(g) / (1 + math.Exp(-float64(g)))
				on := kernels.F16Value(kernels.F16Bits(float32(math.Abs(v)))) >= threshold0
				if on != (table[k*w+n/64]>>(n%64)&1 == 1) {
					d++
				}
			}
			if d < best {
				best, at = d, k
			}
		}
		before := append([]float32(nil), gate...)
		if got := c.Gate0(gate); int(got) != at {
			t.Errorf("token %d: centroid %d, want %d at distance %d", i, got, at, best)
		}
		if !reflect.DeepEqual(before, gate) {
			t.Fatal("the activations were changed")
		}
	}
}

func TestStatic(t *testing.T) {
	m, _, rows := centroids()
	for p := range Projections { // it reads nothing of the tables
		delete(m, TableName(p, 1))
		delete(m, TableName(p, 2))
	}
	path := m.write(t, "centroids")
	for _, first := range []int{0, 2} {
		s, err := LoadStatic(path, small, first)
		if err != nil {
			t.Fatal(err)
		}
		var sel Selector = s
		dst := make([]float32, small.Intermediate)
		sel.Observe(nil, nil)
		for l := max(1, first); l < small.Layers; l++ {
			if sel.Scores(l, dst); !reflect.DeepEqual(dst, rows[StaticName(l)]) {
				t.Errorf("layer %d: scores differ from the stored row", l)
			}
			if len(sel.Pins(l)) != 3 {
				t.Errorf("layer %d: pins %v", l, sel.Pins(l))
			}
		}
		if sel.Name() != "static" || sel.NeedsLayer0() {
			t.Error("what the selector says of itself")
		}
	}
}

// TestRefused bends each member and asks for a refusal that names the tensor.
func TestRefused(t *testing.T) {
	nan := float32(math.NaN())
	row := make([]float32, small.Intermediate)
	bad := append([]float32(nil), row...)
	bad[7] = nan
	for name, c := range map[string]struct {
		bend func(m member)
		want string
	}{
		"missing table":     {func(m member) { delete(m, "up.2") }, "up.2"},
		"bit beyond M":      {func(m member) { m.u64("gate.1", 1, []uint64{0, 0, 1 << 22}) }, "gate.1"},
		"too few words":     {func(m member) { m.u64("gate.1", 1, []uint64{0, 0}) }, "gate.1"},
		"frequency NaN":     {func(m member) { m.f32("freq.up.1", bad, len(bad)) }, "freq.up.1"},
		"frequency length":  {func(m member) { m.f32("freq.up.1", row[1:], len(row)-1) }, "freq.up.1"},
		"pins descend":      {func(m member) { m["pins.1"] = tensors.I32Entry("pins.1", []int{2}, []int32{5, 5}) }, "pins.1"},
		"pin beyond M":      {func(m member) { m["pins.1"] = tensors.I32Entry("pins.1", []int{1}, []int32{150}) }, "pins.1"},
		"threshold NaN":     {func(m member) { m.f32("threshold", []float32{nan, 1, 1, 1, 1, 1}, 3, 2) }, "threshold"},
		"threshold missing": {func(m member) { delete(m, "threshold") }, "threshold"},
		"layer 0 missing":   {func(m member) { delete(m, "layer0.gate") }, "layer0.gate"},
	} {
		m, _, _ := centroids()
		c.bend(m)
		_, err := LoadCentroids(m.write(t, "centroids"), small, 0)
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "tensor "+c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		bend func(m member)
		want string
	}{
		"missing head":    {func(m member) { delete(m, "head.up.2") }, "head.up.2"},
		"missing bias":    {func(m member) { delete(m, "head.up.2.bias") }, "head.up.2.bias"},
		"width disagrees": {func(m member) { m.f16("block.3.w2", dim, dim, rng) }, "block.3.w2"},
		"hidden":          {func(m member) { m.f16("proj.resid", dim, small.Hidden+1, rng) }, "proj.resid"},
		"dtype":           {func(m member) { m.f32("proj.embed", make([]float32, dim*small.Hidden), dim, small.Hidden) }, "proj.embed"},
		"norm":            {func(m member) { delete(m, "final.norm") }, "final.norm"},
	} {
		m := network()
		c.bend(m)
		_, err := LoadPredictor(m.write(t, "predictor.safetensors"), small, 0)
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "tensor "+c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Members that do not belong together.
	m, _, _ := centroids()
	net := network()
	net.f16(HeadName(0, 2), gateK+1, dim, rng)
	net.f32(BiasName(0, 2), make([]float32, gateK+1), gateK+1)
	c, err := LoadCentroids(m.write(t, "centroids"), small, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := LoadPredictor(net.write(t, "predictor.safetensors"), small, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPaper(p, c); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "gate.2") {
		t.Errorf("one id too many: %v", err)
	}
}
