package ladder

import (
	"context"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/resident"
)

// selKey names a selector of a bundle.
type selKey struct {
	bundle int
	name   string
}

func (r Rung) key() selKey { return selKey{r.bundle, r.Selector} }

// pass is one rung's way through the strips. Its slot maps live from strip to strip.
type pass struct {
	f       *forward
	r       Rung
	sel     *selector // nil for the best possible choice
	means   *predictor.Means
	chooser resident.Chooser
	layers  []*picker // from r.Dense
	words   int
	active  []int32   // (K_max)
	scores  []float32 // (M)
	embed   []float32 // (H)
	ids     []int32   // (tables)

	// the strip in progress
	strip   *strip
	s       *shared
	forks   []bool // (T) row i begins a forked part
	measure bool
	left    *leftOut // nil: what is left out is not summed
}

// newPass starts with empty slot maps.
func newPass(f *forward, r Rung, sel *selector, t int) (*pass, error) {
	c := f.w.c
	p := &pass{f: f, r: r, sel: sel, words: predictor.Words(c.Intermediate), active: make([]int32, r.KMax),
		chooser: resident.Chooser{KMax: r.KMax, Margin: r.Margin, Cap: -1},
		scores:  make([]float32, c.Intermediate), embed: make([]float32, c.Hidden), ids: make([]int32, 2), forks: make([]bool, t)}
	if r.ReadCap > 0 {
		p.chooser.Cap = r.ReadCap
	}
	if sel != nil && r.Choice == Predicted && r.KMax < c.Intermediate {
		p.means = sel.means
	}
	for l := r.Dense; l < c.Layers; l++ {
		k := &picker{slots: resident.NewMap(c.Intermediate, r.KMax), mask: make([]uint64, t*p.words), reads: make([]int32, t)}
		if sel != nil {
			if k.pins = sel.Pins(l); len(k.pins) > r.KMax {
				return nil, format.Inputf("--k-max %d: layer %d has %d pinned neurons, which must fit", r.KMax, l, len(k.pins))
			}
		}
		p.layers = append(p.layers, k)
	}
	return p, nil
}

// run takes a strip through the sparse layers, and adds to ty, unless it is nil, what they did.
func (p *pass) run(ctx context.Context, s *shared, ty *tally) (*answer, error) {
	f, st := p.f, s.strip
	c, t := f.w.c, len(st.ids)
	p.strip, p.s, p.measure = st, s, ty != nil
	clear(p.forks)
	row := 0
	for _, part := range st.parts {
		if part.n > 0 {
			p.forks[row] = part.fork
		}
		row += part.n
	}
	x := f.x[:t*c.Hidden]
	copy(x, s.in[p.r.Dense])
	p.atOnce()
	for site := range 2 * p.r.Dense {
		if stream := s.sites[site]; stream != nil {
			p.ahead(site, stream)
		}
	}
	for l := p.r.Dense; l < c.Layers; l++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows, err := f.w.layer(l)
		if err != nil {
			return nil, err
		}
		layer := f.w.m.Layers[l]
		p.ahead(2*l, x)
		if f.device != nil {
			f.attentionRows(layer, x, st, layerKV(f.kv, l), nil)
		} else {
			f.attention(layer, x, st.parts, layerKV(f.kv, l), nil)
		}
		p.ahead(predictor.MLPSite(l), x)
		p.mlp(l, layer, rows, x, ty)
	}
	if ty != nil {
		ty.Tokens += t
		if st.atZero() {
			ty.Tokens--
		}
	}
	if f.device != nil {
		return f.scoreRows(x, st)
	}
	return f.score(x, st)
}

// mlp adds layer l's active neurons to x (T, H). All neurons are computed, to know what the choice was worth; what was
// not chosen is zero in the sum, or its mean.
func (p *pass) mlp(l int, layer *model.Layer, rows model.Rows, x []float32, ty *tally) {
	f, t := p.f, len(p.strip.ids)
	h, m := f.w.c.Hidden, f.w.c.Intermediate
	k := p.layer(l)
	mean, sum := p.meansOf(l)
	if f.device != nil && ty == nil && p.r.Choice == Predicted {
		f.mlpRows(layer, rows, x, p.strip, k.mask, mean, sum, nil)
		return
	}
	in := kernels.F32Matrix(f.batch.BeginMLP(layer, x, t), t, h, h)
	gate, up, act, importance := f.gate[:t*m], f.up[:t*m], f.act[:t*m], f.importance[:t*m]
	kernels.Gemm(f.pool, kernels.F32Matrix(gate, t, m, m), in, kernels.F16Matrix(rows.Mem, m, h, rows.Stride).T(), false)
	kernels.Gemm(f.pool, kernels.F32Matrix(up, t, m, m), in, kernels.F16Matrix(rows.Mem[h:], m, h, rows.Stride).T(), false)
	norms := f.w.norms[l]
	f.pool.Run(t, 4, func(lo, hi int) {
		kernels.SiLUMul(act[lo*m:hi*m], gate[lo*m:hi*m], up[lo*m:hi*m])
		for i := lo; i < hi; i++ {
			for n, a := range act[i*m : (i+1)*m] {
				importance[i*m+n] = max(a, -a) * float32(norms[n])
			}
		}
	})
	if p.r.Choice == Perfect {
		p.told(l, k)
	}
	if ty != nil {
		ty.add(p, l, k)
	}
	k.seen = k.seen[:0]
	if p.left != nil {
		p.left.add(p, l, k)
	}
	if f.device != nil {
		f.mlpRows(layer, rows, x, p.strip, k.mask, mean, sum, nil)
		return
	}
	f.pool.Run(t, 4, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if p.whole(i) {
				continue
			}
			if mean != nil {
				kernels.AxpyF32(act[i*m:(i+1)*m], -1, mean)
			}
			keep(act[i*m:(i+1)*m], k.mask[i*p.words:(i+1)*p.words])
		}
	})
	out := f.out[:t*h]
	kernels.Gemm(f.pool, kernels.F32Matrix(out, t, h, h), kernels.F32Matrix(act, t, m, m), kernels.F16Matrix(rows.Mem[2*h:], m, h, rows.Stride), false)
	f.pool.Run(t, 8, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if sum != nil && !p.whole(i) {
				kernels.Add(x[i*h:(i+1)*h], sum)
			}
			kernels.Add(x[i*h:(i+1)*h], out[i*h:(i+1)*h])
		}
	})
}

// meansOf are a layer's means (M) and their sum (H), nil without any.
func (p *pass) meansOf(l int) (mean, sum []float32) {
	if p.means == nil {
		return nil, nil
	}
	return p.means.Layer(l)
}

// keep zeroes what is not in the mask.
func keep(act []float32, mask []uint64) {
	for n := range act {
		if mask[n>>6]>>(n&63)&1 == 0 {
			act[n] = 0
		}
	}
}

// told picks a layer's active sets knowing what it computed.
func (p *pass) told(l int, k *picker) {
	f := p.f
	m, norms := f.w.c.Intermediate, f.norms(l)
	for i := range p.strip.ids {
		switch {
		case p.whole(i):
			p.choose(k, i, p.s.seed[l])
		case p.sel == nil:
			p.choose(k, i, f.importance[i*m:(i+1)*m])
		default:
			ids := p.ids[:p.sel.vocab.Tables()]
			p.sel.vocab.RightIDs(l, f.gate[i*m:(i+1)*m], f.up[i*m:(i+1)*m], norms, ids)
			p.sel.vocab.SetIDs(l, ids)
			p.sel.Scores(l, p.scores)
			p.choose(k, i, p.scores)
		}
	}
}

// norms are a layer's ‖down‖₂ (M).
func (f *forward) norms(l int) []float32 {
	out := make([]float32, len(f.w.norms[l]))
	for i, v := range f.w.norms[l] {
		out[i] = float32(v)
	}
	return out
}
