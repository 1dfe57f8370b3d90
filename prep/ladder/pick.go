package ladder

import (
	"math/bits"
	"slices"

	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/resident"
)

// picker chooses the active sets of one sparse layer, row after row, as the engine does.
type picker struct {
	slots *resident.Map
	delta resident.Delta
	pins  []int32
	start []int32  // what the shots left resident
	saved []int32  // what the strip's first part left resident
	mask  []uint64 // (T, W) active sets; all neurons at position 0
	reads []int32  // (T) rows that came in
	seen  []seen   // of every sampleEvery-th row
}

// seen is what a selector said of a row.
type seen struct {
	row    int
	scores []float32 // (M)
	ids    []int32   // (tables) that were predicted, of a selector with ids
}

// sampleEvery is how many rows there are to one whose scores are compared with what came.
const sampleEvery = 8

// residents are the neurons in memory, ascending.
func residents(m *resident.Map) []int32 {
	var ids []int32
	for s := range m.Slots() {
		if n := m.Neuron(int32(s)); n >= 0 {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	return ids
}

// restore makes ids (ascending) the residents.
func (k *picker) restore(ids []int32) {
	k.slots.Clear()
	k.slots.Plan(ids, &k.delta)
	k.slots.Commit(&k.delta, nil)
}

// choose picks row i's active set by scores. A layer's rows come in order.
func (p *pass) choose(k *picker, i int, scores []float32) {
	st := p.strip
	if i == 0 && st.fresh {
		k.restore(k.start)
	}
	if p.forks[i] {
		k.restore(k.saved)
	}
	p.chooser.Pins = k.pins
	p.chooser.Choose(scores, k.slots, p.active)
	k.slots.Plan(p.active, &k.delta)
	k.reads[i] = int32(len(k.delta.In))
	k.slots.Commit(&k.delta, nil)
	row := k.mask[i*p.words : (i+1)*p.words]
	clear(row)
	if i == 0 && st.atZero() {
		p.fill(row)
	} else {
		for _, n := range p.active {
			row[n>>6] |= 1 << (n & 63)
		}
	}
	if len(st.parts) > 1 && i == st.parts[0].n-1 {
		k.saved = residents(k.slots)
	}
}

// fill sets the bits of all neurons.
func (p *pass) fill(row []uint64) {
	for w := range row {
		row[w] = ^uint64(0)
	}
	if m := p.f.w.c.Intermediate; m%64 != 0 {
		row[len(row)-1] = 1<<(m%64) - 1
	}
}

// each calls f with the neurons of a mask, ascending.
func each(mask []uint64, f func(n int)) {
	for w, word := range mask {
		for ; word != 0; word &= word - 1 {
			f(w<<6 | bits.TrailingZeros64(word))
		}
	}
}

// layer is the picker of a sparse layer.
func (p *pass) layer(l int) *picker { return p.layers[l-p.r.Dense] }

// whole tells whether row i runs through whole layers.
func (p *pass) whole(i int) bool { return i == 0 && p.strip.atZero() }

// ahead shows a stepwise selector the stream x (T, H) at a site, and picks for the layers that it names there.
func (p *pass) ahead(site int, x []float32) {
	if p.r.Choice != Predicted || p.sel.step == nil {
		return
	}
	var names []int
	for _, l := range p.sel.names[site] {
		if l >= p.r.Dense {
			names = append(names, l)
		}
	}
	if len(names) == 0 {
		return
	}
	h := p.f.w.c.Hidden
	for i := range p.strip.ids {
		if p.whole(i) {
			for _, l := range names {
				p.choose(p.layer(l), i, p.s.seed[l])
			}
			continue
		}
		if p.sel.NeedsLayer0() {
			p.observe(i)
		}
		p.sel.step.Look(p.f.pool, site, x[i*h:(i+1)*h])
		for _, l := range names {
			p.named(l, i)
		}
	}
}

// atOnce picks for all layers, where the selector names them behind layer 0.
func (p *pass) atOnce() {
	if p.r.Choice != Predicted || p.sel.step != nil {
		return
	}
	for i := range p.strip.ids {
		if p.whole(i) {
			for l := p.r.Dense; l < p.f.w.c.Layers; l++ {
				p.choose(p.layer(l), i, p.s.seed[l])
			}
			continue
		}
		if p.sel.NeedsLayer0() {
			p.observe(i)
		}
		for l := p.r.Dense; l < p.f.w.c.Layers; l++ {
			p.named(l, i)
		}
	}
}

// named picks by what the selector says of a layer and notes it.
func (p *pass) named(l, i int) {
	k := p.layer(l)
	p.sel.Scores(l, p.scores)
	if p.measure && i%sampleEvery == 0 {
		v := seen{row: i, scores: slices.Clone(p.scores)}
		if s, ok := p.sel.Selector.(predictor.Namer); ok {
			v.ids = make([]int32, s.Tables())
			s.NamedIDs(l, v.ids)
		}
		k.seen = append(k.seen, v)
	}
	p.choose(k, i, p.scores)
}

// observe hands row i's features of layer 0 to the selector.
func (p *pass) observe(i int) {
	h := p.f.w.c.Hidden
	p.f.w.m.EmbedTokens(p.embed, p.strip.ids[i:i+1])
	ft := predictor.Features{Embed: p.embed, AttnOut: p.s.attn[i*h : (i+1)*h], MLPIn: p.s.mlpIn[i*h : (i+1)*h], Resid: p.s.resid[i*h : (i+1)*h]}
	if ids := p.s.gate0[p.sel]; ids != nil {
		ft.Gate0 = ids[i]
	}
	p.sel.Observe(p.f.pool, &ft)
}
