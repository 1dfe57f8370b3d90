package synthetic

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sets replays a trace by its definition: the set of every token of a layer.
func sets(t *Trace, layer int) [][]int32 {
	in := map[uint16]bool{}
	for _, n := range t.first[layer-1] {
		in[n] = true
	}
	var all [][]int32
	for i := 0; ; i++ {
		var s []int32
		for n := range in {
			s = append(s, int32(n))
		}
		slices.Sort(s)
		all = append(all, s)
		if i == t.Params.Tokens {
			return all
		}
		come, leave := t.step(layer, i)
		for _, n := range leave {
			delete(in, n)
		}
		for _, n := range come {
			in[n] = true
		}
	}
}

func shared(a, b []int32) int {
	k := 0
	for _, n := range a {
		if _, ok := slices.BinarySearch(b, n); ok {
			k++
		}
	}
	return k
}

// TestTraceIsAsAsked measures reuse and runs from the sets themselves.
func TestTraceIsAsAsked(t *testing.T) {
	for _, p := range []TraceParams{
		{3, 14336, 5500, 40, 0.83, 1.2, 1},
		{3, 14336, 7168, 20, 0.83, 1.2, 2},
		{3, 14336, 9865, 20, 0.9, 1.2, 3},
		{3, 5632, 2161, 40, 0.83, 1.2, 4},
		{2, 1000, 400, 30, 0.5, 1.5, 5},
		{2, 1000, 400, 30, 0.9, 1, 6},
		{2, 1000, 400, 5, 1, 1.2, 7},
	} {
		tr, err := NewTrace(p)
		if err != nil {
			t.Fatal(err)
		}
		for l := 1; l < p.Layers; l++ {
			ids, runs := 0, 0
			s := sets(tr, l)
			for i := range s {
				if len(s[i]) != p.KMax {
					t.Fatalf("%+v: token %d has %d neurons", p, i, len(s[i]))
				}
				if i == 0 {
					continue
				}
				if got, want := p.KMax-shared(s[i], s[i-1]), p.Incoming(); got != want {
					t.Fatalf("%+v: token %d: %d come in, want %d", p, i, got, want)
				}
				last := int32(-2)
				for _, n := range s[i] {
					if _, ok := slices.BinarySearch(s[i-1], n); !ok {
						ids++
						if n != last+1 {
							runs++
						}
						last = n
					}
				}
			}
			reuse := 1 - float64(p.Incoming())/float64(p.KMax)
			if math.Abs(reuse-p.Reuse) > 0.5/float64(p.KMax)+1e-9 {
				t.Errorf("%+v: reuse %v", p, reuse)
			}
			if run := float64(ids) / float64(runs); ids > 0 && math.Abs(run-p.Run) > 0.03 {
				t.Errorf("%+v: mean run %.3f", p, run)
			}
		}
		// The two layers of a trace have nothing to do with each other.
		if p.Layers == 3 {
			a, b := sets(tr, 1)[0], sets(tr, 2)[0]
			want := float64(p.KMax) * float64(p.KMax) / float64(p.Neurons)
			if k := float64(shared(a, b)); math.Abs(k-want) > 0.1*want {
				t.Errorf("%+v: the first sets of two layers share %v neurons, chance is %.0f", p, k, want)
			}
		}
	}
}

// TestTraceFillsTheLimit: when everything outside must come in, it does.
func TestTraceFillsTheLimit(t *testing.T) {
	tr, err := NewTrace(TraceParams{2, 64, 40, 10, 0.4, 1.2, 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sets(tr, 1) {
		if len(s) != 40 {
			t.Errorf("token %d: %d", i, len(s))
		}
	}
}

func TestTraceRefusals(t *testing.T) {
	good := TraceParams{3, 100, 60, 5, 0.8, 1.2, 1}
	for name, change := range map[string]func(p *TraceParams){
		"reuse too low for the set": func(p *TraceParams) { p.Reuse = 0.2 },
		"reuse above 1":             func(p *TraceParams) { p.Reuse = 1.1 },
		"reuse not a number":        func(p *TraceParams) { p.Reuse = math.NaN() },
		"run below 1":               func(p *TraceParams) { p.Run = 0.9 },
		"run not a number":          func(p *TraceParams) { p.Run = math.NaN() },
		"no set":                    func(p *TraceParams) { p.KMax = 0 },
		"set too large":             func(p *TraceParams) { p.KMax = 101 },
		"no layers":                 func(p *TraceParams) { p.Layers = 1 },
		"no tokens":                 func(p *TraceParams) { p.Tokens = 0 },
		"too many neurons":          func(p *TraceParams) { p.Neurons = 1<<16 + 1 },
	} {
		p := good
		change(&p)
		if _, err := NewTrace(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTraceFile(t *testing.T) {
	dir := t.TempDir()
	p := TraceParams{3, 300, 100, 7, 0.8, 1.2, 9}
	a, err := EnsureTrace(dir, "x", p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, TraceName("x", p))
	b, err := ReadTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, b, cmp.AllowUnexported(Trace{})); d != "" {
		t.Error(d)
	}
	// A file that was changed is refused where its steps contradict its sets, and made anew.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(data)
	for i := range 4 { // the last id that goes out
		bad[len(bad)-4+i] = 0
	}
	if err := os.WriteFile(path, bad, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTrace(path); err == nil {
		t.Error("a damaged trace was accepted")
	}
	c, err := EnsureTrace(dir, "x", p)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(path); !slices.Equal(again, data) {
		t.Error("the trace's file was not written again as it was")
	}
	if d := cmp.Diff(a, c, cmp.AllowUnexported(Trace{})); d != "" {
		t.Error(d)
	}
}

func TestRandom(t *testing.T) {
	src := newSource(1, 2)
	w := make([]uint64, 1<<12)
	for _, rms := range []float64{1, 0.02, 1 / math.Sqrt(4096), 1 / math.Sqrt(14336)} {
		src.halves(w, rms)
		sum, neg := 0.0, 0
		for _, x := range w {
			for k := range 4 {
				h := uint16(x >> (16 * k))
				e, m := int(h>>10&31), float64(h&1023)/1024
				if e == 0 || e == 31 {
					t.Fatalf("%#04x is not a normal number", h)
				}
				v := math.Ldexp(1+m, e-15)
				sum += v * v
				neg += int(h >> 15)
			}
		}
		n := float64(4 * len(w))
		if got := math.Sqrt(sum / n); got < rms/1.45 || got > rms*1.45 {
			t.Errorf("root mean square %v, want about %v", got, rms)
		}
		if s := float64(neg) / n; math.Abs(s-0.5) > 0.02 {
			t.Errorf("%.3f are negative", s)
		}
	}
	for _, p := range []float64{0, 0.25, 0.4, 0.6193, 1} {
		bitsSet, n := 0, 0
		row := make([]uint64, 7)
		for range 400 {
			src.mask(row, 416, p)
			if row[6]>>32 != 0 {
				t.Fatal("bits beyond the last neuron")
			}
			for _, x := range row {
				for ; x != 0; x &= x - 1 {
					bitsSet++
				}
			}
			n += 416
		}
		if got := float64(bitsSet) / float64(n); math.Abs(got-p) > 0.01 {
			t.Errorf("density %v, want %v", got, p)
		}
	}
}
