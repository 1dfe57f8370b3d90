package resident

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// model is the trivially correct slot map.
type model struct {
	slot   map[int32]int32
	neuron map[int32]int32
}

func newModel() *model { return &model{map[int32]int32{}, map[int32]int32{}} }

func (m *model) put(n, slot int32) { m.slot[n], m.neuron[slot] = slot, n }
func (m *model) drop(n int32) {
	if s, ok := m.slot[n]; ok {
		delete(m.slot, n)
		delete(m.neuron, s)
	}
}

// equal compares every neuron and every slot, which also shows that slots are unique.
func (m *model) equal(t *testing.T, got *Map) {
	t.Helper()
	if got.Len() != len(m.slot) {
		t.Fatalf("%d resident, want %d", got.Len(), len(m.slot))
	}
	for n := range int32(got.Neurons()) {
		want, ok := m.slot[n]
		if !ok {
			want = -1
		}
		if s := got.Slot(n); s != want {
			t.Fatalf("neuron %d in slot %d, want %d", n, s, want)
		}
	}
	for s := range int32(got.Slots()) {
		want, ok := m.neuron[s]
		if !ok {
			want = -1
		}
		if n := got.Neuron(s); n != want {
			t.Fatalf("slot %d holds %d, want %d", s, n, want)
		}
	}
}

func randomSet(rng *rand.Rand, neurons, size int) []int32 {
	set := make([]int32, 0, size)
	for _, n := range rng.Perm(neurons)[:size] {
		set = append(set, int32(n))
	}
	slices.Sort(set)
	return set
}

// TestMap takes 100,000 random steps: new sets of the full size and smaller ones, the same set again, near and far ones, reads
// that fail, and rows that are dropped.
func TestMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	shapes := [][2]int{{1, 1}, {2, 1}, {5, 3}, {9, 9}, {64, 1}, {64, 64}, {65, 20}, {100, 70}, {200, 13}, {40, 0}}
	for _, shape := range shapes {
		t.Run(fmt.Sprintf("%d-%d", shape[0], shape[1]), func(t *testing.T) {
			neurons, slots := shape[0], shape[1]
			m, ref := NewMap(neurons, slots), newModel()
			var d Delta
			active := randomSet(rng, neurons, slots)
			for range 100000 / len(shapes) {
				switch rng.IntN(10) {
				case 0: // the same set
				case 1:
					active = randomSet(rng, neurons, rng.IntN(slots+1))
				case 2:
					if neurons > 0 {
						n := int32(rng.IntN(neurons))
						m.Drop(n)
						ref.drop(n)
						ref.equal(t, m)
					}
				case 3, 4, 5: // a near set
					if len(active) > 0 && len(active) < neurons {
						for { // exchange one
							n := int32(rng.IntN(neurons))
							if !slices.Contains(active, n) {
								active[rng.IntN(len(active))] = n
								slices.Sort(active)
								break
							}
						}
					}
				default:
					active = randomSet(rng, neurons, slots)
				}
				m.Plan(active, &d)
				ref.equal(t, m) // planning changes nothing
				checkDelta(t, ref, slots, active, &d)
				var done []bool
				if rng.IntN(3) == 0 {
					done = make([]bool, len(d.In)+rng.IntN(3))
					for i := range done {
						done[i] = rng.IntN(2) == 0
					}
				}
				m.Commit(&d, done)
				step(ref, &d, done)
				ref.equal(t, m)
				if done == nil || !slices.Contains(done[:len(d.In)], false) {
					for _, n := range active {
						if m.Slot(n) < 0 {
							t.Fatalf("active neuron %d is not resident", n)
						}
					}
					if m.Len() != len(active) {
						t.Fatalf("%d resident, %d active", m.Len(), len(active))
					}
				}
			}
		})
	}
}

// checkDelta holds a delta against the definitions D_in = A \ R, D_out = R \ A.
func checkDelta(t *testing.T, ref *model, slots int, active []int32, d *Delta) {
	t.Helper()
	var in, out []int32
	for _, n := range active {
		if _, ok := ref.slot[n]; !ok {
			in = append(in, n)
		}
	}
	for n := range ref.slot {
		if !slices.Contains(active, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	if !slices.Equal(d.In, in) || !slices.Equal(d.Out, out) {
		t.Fatalf("in %v out %v, want %v and %v", d.In, d.Out, in, out)
	}
	if len(active) != d.Reused+len(d.In) {
		t.Fatalf("%d needed, %d reused, %d read", len(active), d.Reused, len(d.In))
	}
	if len(d.Slots) != len(d.In) {
		t.Fatalf("%d slots for %d rows", len(d.Slots), len(d.In))
	}
	seen := map[int32]bool{}
	for _, s := range d.Slots {
		n, taken := ref.neuron[s]
		if s < 0 || int(s) >= slots || seen[s] || taken && !slices.Contains(out, n) {
			t.Fatalf("slot %d of %v is out of range, given twice or of a neuron that stays", s, d.Slots)
		}
		seen[s] = true
	}
}

// step is Commit by its definition: a neuron of D_out leaves unless its slot was to be taken by a row that did not come.
func step(ref *model, d *Delta, done []bool) {
	keep := map[int32]bool{}
	for i := range d.In {
		if done != nil && !done[i] {
			keep[d.Slots[i]] = true
		}
	}
	for _, n := range d.Out {
		if !keep[ref.slot[n]] {
			ref.drop(n)
		}
	}
	for i, n := range d.In {
		if done == nil || done[i] {
			ref.put(n, d.Slots[i])
		}
	}
}

// choose is Chooser by its definition: sort, then walk down, holding newcomers to their quota.
func choose(c *Chooser, scores []float32, m *Map) []int32 {
	resident := func(n int32) bool { return m != nil && m.Slot(n) >= 0 }
	value := func(n int32) float32 {
		if resident(n) {
			return scores[n] + c.Margin
		}
		return scores[n]
	}
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	nan := func(f float32) bool { return f != f }
	sort.SliceStable(order, func(i, j int) bool {
		a, b := order[i], order[j]
		if pa, pb := slices.Contains(c.Pins, a), slices.Contains(c.Pins, b); pa != pb {
			return pa
		}
		x, y := value(a), value(b)
		if nan(x) != nan(y) {
			return nan(y)
		}
		return x > y
	})
	quota := math.MaxInt
	if c.Cap >= 0 && m != nil {
		quota = c.Cap + c.KMax - m.Len()
	}
	var set []int32
	for _, n := range order {
		if len(set) == c.KMax {
			break
		}
		if !resident(n) {
			if quota <= 0 && !slices.Contains(c.Pins, n) {
				continue
			}
			quota--
		}
		set = append(set, n)
	}
	slices.Sort(set)
	return set
}

// TestChooser compares with the definition over random scores (few values, so that ties are common; infinities, NaN, −0),
// residents, margins, caps and pins, and follows chains where each set becomes the resident one.
func TestChooser(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 0, math.MaxFloat32}
	for range 3000 {
		neurons := 1 + rng.IntN(120)
		k := rng.IntN(neurons + 1)
		if rng.IntN(5) == 0 {
			k = min(1, neurons)
		}
		c := Chooser{KMax: k, Cap: rng.IntN(k+3) - 1, Margin: float32(rng.IntN(3)) * 0.75}
		c.Pins = randomSet(rng, neurons, min(rng.IntN(5), k))
		m := NewMap(neurons, k)
		var d Delta
		if rng.IntN(2) == 0 {
			m.Plan(randomSet(rng, neurons, rng.IntN(k+1)), &d)
			m.Commit(&d, nil)
		}
		levels := 1 + rng.IntN(20)
		active := make([]int32, k)
		scores := make([]float32, neurons)
		for range 35 { // 3,000 chains of 35: more than 100,000 steps
			for i := range scores {
				scores[i] = float32(rng.IntN(levels)) - 3
				if rng.IntN(30) == 0 {
					scores[i] = special[rng.IntN(len(special))]
				}
			}
			use := m
			if rng.IntN(20) == 0 {
				use = nil
			}
			c.Choose(scores, use, active)
			if want := choose(&c, scores, use); !slices.Equal(active, want) {
				t.Fatalf("M %d K %d cap %d margin %v pins %v scores %v resident %d\n got %v\nwant %v", neurons, k, c.Cap, c.Margin, c.Pins, scores, m.Len(), active, want)
			}
			m.Plan(active, &d)
			if use != nil && c.Cap >= 0 && len(d.In) > c.Cap+k-m.Len()+len(c.Pins) {
				t.Fatalf("%d rows come in, cap %d", len(d.In), c.Cap)
			}
			var done []bool
			if rng.IntN(10) == 0 {
				done = make([]bool, len(d.In))
				for i := range done {
					done[i] = rng.IntN(4) > 0
				}
			}
			m.Commit(&d, done)
		}
	}
}

// TestNthLargest includes orders that make naive pivots slow, and equal values.
func TestNthLargest(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for n := 1; n < 300; n++ {
		for kind := range 5 {
			a := make([]uint64, n)
			for i := range a {
				a[i] = []uint64{uint64(i), uint64(n - i), 7, rng.Uint64(), uint64(rng.IntN(3))}[kind]
			}
			sorted := slices.Clone(a)
			slices.Sort(sorted)
			k := 1 + rng.IntN(n)
			if got := nthLargest(slices.Clone(a), k); got != sorted[n-k] {
				t.Fatalf("kind %d: %d-th largest of %v is %d", kind, k, sorted, got)
			}
		}
	}
}

// TestNoAllocation: steps at full size allocate nothing.
func TestNoAllocation(t *testing.T) {
	const neurons, slots = 14336, 5500
	rng := rand.New(rand.NewPCG(1, 1))
	c := Chooser{KMax: slots, Margin: 0.1, Cap: 700, Pins: []int32{3, 77}}
	m := NewMap(neurons, slots)
	var d Delta
	scores := make([]float32, neurons)
	active := make([]int32, slots)
	step := func() {
		for i := range scores {
			scores[i] = rng.Float32()
		}
		c.Choose(scores, m, active)
		m.Plan(active, &d)
		m.Commit(&d, nil)
	}
	for range 3 {
		step()
	}
	d.In, d.Out, d.Slots = slices.Grow(d.In, slots), slices.Grow(d.Out, slots), slices.Grow(d.Slots, slots)
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestMisuse(t *testing.T) {
	m := NewMap(10, 2)
	var d Delta
	for name, f := range map[string]func(){
		"more than slots": func() { m.Plan([]int32{1, 2, 3}, &d) },
		"not ascending":   func() { m.Plan([]int32{2, 1}, &d) },
		"repeated":        func() { m.Plan([]int32{2, 2}, &d) },
		"too many pins":   func() { (&Chooser{KMax: 1, Pins: []int32{1, 2}}).Choose(make([]float32, 9), nil, make([]int32, 3)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func BenchmarkStep(b *testing.B) {
	for _, slots := range []int{5500, 7168, 9865} {
		b.Run(fmt.Sprintf("M14336-K%d", slots), func(b *testing.B) {
			const neurons = 14336
			rng := rand.New(rand.NewPCG(1, 1))
			c := Chooser{KMax: slots, Margin: 0.05, Cap: 1000}
			m := NewMap(neurons, slots)
			var d Delta
			base := make([]float32, neurons)
			for i := range base {
				base[i] = rng.Float32()
			}
			var noisy [8][]float32
			for k := range noisy {
				noisy[k] = make([]float32, neurons)
				for i := range base {
					noisy[k][i] = base[i] + 0.2*rng.Float32()
				}
			}
			active := make([]int32, slots)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Choose(noisy[i%8], m, active)
				m.Plan(active, &d)
				m.Commit(&d, nil)
			}
		})
	}
}
