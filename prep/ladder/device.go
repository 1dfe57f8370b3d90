package ladder

import (
	"context"
	"slices"

	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

// device is the arithmetic of a device: every token behind position 0 by the kernels of the token loop, layer by layer
// all the same, so that a layer's weights stay in the processor's cache. Its figures are those of nprun eval, bit for
// bit.
type device struct {
	attn  *model.Step   // on all threads
	steps []*model.Step // one thread each: MLPs of different tokens
	off   []int         // (M) where all records of a layer begin
	offs  [][]int       // (K_max) per step: where the active ones do
	ids   [][]int32     // (K_max) per step: which they are
	at    []int         // (T) positions of the rows in progress
}

func newDevice(w *weights, t, positions int) *device {
	d := &device{attn: w.m.NewStep(positions), off: make([]int, w.c.Intermediate), at: make([]int, t)}
	for n := range d.off {
		d.off[n] = n * w.b.Manifest.Rows.RowBytes / 2
	}
	inline := *w.m
	inline.Pool = nil
	for range w.m.Pool.Threads() {
		d.steps, d.offs = append(d.steps, inline.NewStep(positions)), append(d.offs, make([]int, w.c.Intermediate))
		d.ids = append(d.ids, make([]int32, 0, w.c.Intermediate))
	}
	return d
}

// positions are those of the strip's rows.
func (d *device) positions(st *strip) []int {
	row := 0
	for _, p := range st.parts {
		for i := range p.n {
			d.at[row] = p.pos + i
			row++
		}
	}
	return d.at[:row]
}

// attention is forward.attention, row by row.
func (f *forward) attentionRows(layer *model.Layer, x []float32, st *strip, kv model.LayerKV, out []float32) {
	h := f.w.c.Hidden
	for i, pos := range f.device.positions(st) {
		xi := x[i*h : (i+1)*h]
		var y []float32
		if pos == 0 { // through whole layers, as a prompt
			y = f.batch.Attention(layer, xi, 1, kv, 0)
		} else {
			y = f.device.attn.Attention(layer, xi, kv, pos)
		}
		if out != nil {
			copy(out[i*h:], y)
		}
	}
}

// mlpRows adds a layer's MLP to x (T, H), row by row: the neurons of mask (T, W), or all. mean (M) and sum
// (H), unless nil, stand in for the others. seen, if any, gets a row's normed input and its gate outputs; it is called from
// several threads.
func (f *forward) mlpRows(layer *model.Layer, rows model.Rows, x []float32, st *strip, mask []uint64, mean, sum []float32, seen func(i int, in, gate []float32)) {
	h, t, words := f.w.c.Hidden, len(st.ids), predictor.Words(f.w.c.Intermediate)
	first := 0
	if st.atZero() {
		first = 1
		in := f.batch.BeginMLP(layer, x[:h], 1)
		f.batch.MLPChunk(rows, 0, func(lo, hi int, gate, up []float32) { copy(f.gate[lo:hi], gate) })
		f.batch.EndMLP(x[:h])
		if seen != nil {
			seen(0, in, f.gate[:rows.N])
		}
	}
	n := len(f.device.steps)
	f.pool.Run(n, 1, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			step := f.device.steps[s]
			for i := first + s; i < t; i += n {
				off, ids := f.device.off, f.device.ids[s][:0]
				if mask != nil {
					off = f.device.offs[s][:0]
					each(mask[i*words:(i+1)*words], func(n int) { off, ids = append(off, n*rows.Stride), append(ids, int32(n)) })
				}
				in := step.BeginMLP(layer, x[i*h:(i+1)*h])
				var gate []float32
				if mean != nil {
					step.MLPRowsOf(rows.Mem, off, ids, mean, sum)
				} else {
					gate, _ = step.MLPRows(rows.Mem, off)
				}
				step.EndMLP(x[i*h : (i+1)*h])
				if seen != nil {
					seen(i, in, gate)
				}
			}
		}
	})
}

// passRows is what a device computes of a strip's dense prefixes.
func (f *forward) passRows(ctx context.Context, st *strip, w *wants) (*shared, error) {
	c := f.w.c
	h, t := c.Hidden, len(st.ids)
	x := f.x[:t*h]
	f.w.m.EmbedTokens(x, st.ids)
	s := newShared(st, w, h, c.Layers)
	for l, layer := range f.w.m.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if slices.Contains(w.dense, l) {
			s.in[l] = slices.Clone(x)
		}
		if l >= w.dense[len(w.dense)-1] {
			break
		}
		rows, err := f.w.layer(l)
		if err != nil {
			return nil, err
		}
		s.look(w, 2*l, x)
		var out []float32
		if l == 0 {
			out = s.attn
		}
		f.attentionRows(layer, x, st, layerKV(f.kv, l), out)
		s.look(w, predictor.MLPSite(l), x)
		var seen func(i int, in, gate []float32)
		if l == 0 && w.features {
			all := make([]float32, t*c.Intermediate)
			seen = func(i int, in, gate []float32) {
				copy(s.mlpIn[i*h:(i+1)*h], in)
				copy(all[i*c.Intermediate:], gate)
			}
			defer func() { // one row after the other: naming uses working memory
				for _, sel := range w.gate0 {
					ids := make([]int32, t)
					for i := range ids {
						ids[i] = sel.gate0(all[i*c.Intermediate : (i+1)*c.Intermediate])
					}
					s.gate0[sel] = ids
				}
			}()
		}
		f.mlpRows(layer, rows, x, st, nil, nil, nil, seen)
		if l == 0 && w.features {
			copy(s.resid, x)
		}
	}
	if st.atZero() {
		// The seeds do not depend on the rows behind.
		zero, _, err := f.passBatch(ctx, &strip{ids: st.ids[:1], parts: []part{{n: 1}}}, &wants{dense: w.dense}, false)
		if err != nil {
			return nil, err
		}
		s.seed = zero.seed
	}
	return s, nil
}

// scoreRows is forward.score as a device has it.
func (f *forward) scoreRows(x []float32, st *strip) (*answer, error) {
	c := f.w.c
	h, n := c.Hidden, len(st.rows)
	a := &answer{logProbs: make([]float64, n), top: make([]int32, n)}
	at := f.device.positions(st)
	threads := len(f.device.steps)
	rank := func(i int, logits []float32) {
		a.logProbs[i], _ = model.Rank(logits, st.targets[i], 0, nil)
		a.top[i] = int32(kernels.MaxIndex(logits))
	}
	logits := make([][]float32, threads)
	for s := range logits {
		logits[s] = make([]float32, c.Vocab)
	}
	f.pool.Run(threads, 1, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			for i := s; i < n; i += threads {
				if r := st.rows[i]; at[r] > 0 {
					f.device.steps[s].Logits(logits[s], x[r*h:(r+1)*h])
					rank(i, logits[s])
				}
			}
		}
	})
	for i, r := range st.rows {
		if at[r] == 0 {
			f.batch.Logits(logits[0], x, r, r+1)
			rank(i, logits[0])
		}
	}
	return a, f.finite(a, st)
}
