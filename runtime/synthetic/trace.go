package synthetic

import (
	"math"
	"slices"

	"neuroprefetcher/format"
)

// maxNeurons bounds a layer: ids are kept in 16 bits.
const maxNeurons = 1 << 16

// DefaultReuse and DefaultRun are what was seen in traces of real text with a margin for residents.
const (
	DefaultReuse = 0.83
	DefaultRun   = 1.2 // mean length of the runs of adjacent ids among those that come in
)

// TraceParams say which trace. The same parameters give the same trace on any machine.
type TraceParams struct {
	Layers  int     `json:"layers"`  // of the model; layer 0, which is never sparse, has no sets
	Neurons int     `json:"neurons"` // M
	KMax    int     `json:"k_max"`   // size of every set
	Tokens  int     `json:"tokens"`  // steps; the sets of steps+1 tokens
	Reuse   float64 `json:"reuse"`   // share of a set that was in the one before
	Run     float64 `json:"run"`     // mean run of adjacent ids among those that come in
	Seed    uint64  `json:"seed"`
}

// Incoming is how many ids change from one token to the next: (1 − Reuse)·KMax, to the nearest.
func (p TraceParams) Incoming() int { return int(math.Round((1 - p.Reuse) * float64(p.KMax))) }

// Check refuses parameters for which there is no trace.
func (p TraceParams) Check() error {
	switch {
	case p.Layers < 2 || p.Neurons < 1 || p.Neurons > maxNeurons || p.Tokens < 1 || p.Tokens > 1<<20:
		return format.Inputf("a trace of %d tokens for %d layers of %d neurons: want at least 1, 2, 1 and at most %d neurons", p.Tokens, p.Layers, p.Neurons, maxNeurons)
	case p.KMax < 1 || p.KMax > p.Neurons:
		return format.Inputf("K_max %d is not in 1..%d", p.KMax, p.Neurons)
	case !(p.Reuse >= 0 && p.Reuse <= 1):
		return format.Inputf("reuse %v is not in 0..1", p.Reuse)
	case p.Incoming() > p.Neurons-p.KMax:
		return format.Inputf("reuse %v: with K_max %d of %d neurons it is at least %.3f, because only %d can come in", p.Reuse, p.KMax, p.Neurons,
			1-float64(p.Neurons-p.KMax)/float64(p.KMax), p.Neurons-p.KMax)
	case !(p.Run >= 1 && p.Run <= 64):
		return format.Inputf("mean run %v is not in 1..64", p.Run)
	}
	return nil
}

// Trace is the active sets of consecutive tokens: per layer a first set and, for every step, the ids that come in and
// those that go out. It is read-only.
type Trace struct {
	Params TraceParams

	n       int        // ids in and out per step
	first   [][]uint16 // per layer from 1: (KMax) ascending
	in, out [][]uint16 // per layer from 1: (Tokens, n), ascending within a step
}

// NewTrace makes a trace.
func NewTrace(p TraceParams) (*Trace, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	t := &Trace{Params: p, n: p.Incoming()}
	for l := 1; l < p.Layers; l++ {
		t.addLayer(newSource(p.Seed, streamTrace+uint64(l)))
	}
	return t, nil
}

// addLayer makes the sets of the next layer.
func (t *Trace) addLayer(src source) {
	p, n := t.Params, t.n
	w := newWalk(p.Neurons, p.KMax, src)
	first := slices.Clone(w.list[:p.KMax])
	slices.Sort(first)
	in, out := make([]uint16, 0, p.Tokens*n), make([]uint16, 0, p.Tokens*n)
	for range p.Tokens {
		i, o := w.step(n, p.Run)
		in, out = append(in, i...), append(out, o...)
	}
	t.first, t.in, t.out = append(t.first, first), append(t.in, in), append(t.out, out)
}

// step returns what comes in and goes out of the layer's set at a step.
func (t *Trace) step(layer, i int) (in, out []uint16) {
	return t.in[layer-1][i*t.n : (i+1)*t.n], t.out[layer-1][i*t.n : (i+1)*t.n]
}

// MeanRun is the mean length of the runs of adjacent ids among those that come in, over the whole trace; 0 if none do.
func (t *Trace) MeanRun() float64 {
	ids, runs := 0, 0
	for l := 1; l < t.Params.Layers; l++ {
		for i := range t.Params.Tokens {
			in, _ := t.step(l, i)
			ids += len(in)
			for k := range in {
				if k == 0 || in[k] != in[k-1]+1 {
					runs++
				}
			}
		}
	}
	if runs == 0 {
		return 0
	}
	return float64(ids) / float64(runs)
}

// Bytes is what the trace holds in memory.
func (t *Trace) Bytes() int64 {
	n := int64(0)
	for i := range t.first {
		n += 2 * int64(len(t.first[i])+len(t.in[i])+len(t.out[i]))
	}
	return n
}

// walk is a set of K of M ids that changes step by step.
type walk struct {
	src    source
	k      int
	list   []uint16 // (M) all ids, the members first
	at     []int32  // (M) where an id is in list
	chosen []bool   // (M+2), by id+1: comes in at the step in progress
	lens   []int
}

func newWalk(m, k int, src source) *walk {
	w := &walk{src: src, k: k, list: make([]uint16, m), at: make([]int32, m), chosen: make([]bool, m+2)}
	for i := range w.list {
		w.list[i], w.at[i] = uint16(i), int32(i)
	}
	for i := range k {
		w.swap(i, i+w.src.below(m-i))
	}
	return w
}

func (w *walk) swap(i, j int) {
	a, b := w.list[i], w.list[j]
	w.list[i], w.list[j], w.at[a], w.at[b] = b, a, int32(j), int32(i)
}

func (w *walk) member(id int) bool { return int(w.at[id]) < w.k }

// step exchanges n members for n others, those that come in being runs of adjacent ids of the wanted mean length as far
// as there are such runs outside the set.
func (w *walk) step(n int, run float64) (in, out []uint16) {
	in = make([]uint16, 0, n)
	for _, length := range w.lengths(n, run) {
		if id, ok := w.place(length); ok {
			for i := range length {
				in = append(in, uint16(id+i))
				w.chosen[id+i+1] = true
			}
		}
	}
	// What found no place comes in wherever there is one.
	for m := len(w.list); len(in) < n; {
		id := w.list[w.k+w.src.below(m-w.k)]
		for at := int(w.at[id]); w.chosen[int(id)+1]; {
			if at++; at == m {
				at = w.k
			}
			id = w.list[at]
		}
		in = append(in, id)
		w.chosen[int(id)+1] = true
	}
	for i := range n { // the members that go out move to the end of the members
		w.swap(w.k-1-i, w.src.below(w.k-i))
	}
	out = slices.Clone(w.list[w.k-n : w.k])
	for i, id := range in {
		w.chosen[int(id)+1] = false
		w.swap(w.k-n+i, int(w.at[id]))
	}
	slices.Sort(in)
	slices.Sort(out)
	return in, out
}

// lengths cuts n ids into runs of the mean length, longest first.
func (w *walk) lengths(n int, run float64) []int {
	if n == 0 {
		return nil
	}
	runs := min(max(int(math.Round(float64(n)/run)), 1), n)
	w.lens = w.lens[:0]
	for range runs {
		w.lens = append(w.lens, 1)
	}
	for range n - runs {
		w.lens[w.src.below(runs)]++
	}
	slices.Sort(w.lens)
	slices.Reverse(w.lens)
	return w.lens
}

// place finds a run of ids outside the set that touches no other run of the step.
func (w *walk) place(length int) (first int, ok bool) {
	const tries = 64
	m := len(w.list)
	for range tries {
		first = w.src.below(m - length + 1)
		ok = !w.chosen[first] && !w.chosen[first+length+1]
		for i := first; ok && i < first+length; i++ {
			ok = !w.member(i) && !w.chosen[i+1]
		}
		if ok {
			return first, true
		}
	}
	return 0, false
}
