package ladder

import (
	"context"
	"math"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

// forward is the working memory of all passes.
type forward struct {
	w     *weights
	pool  *kernels.Pool
	batch *model.Batch
	exact *model.KV // of the exact pass
	kv    *model.KV // of the rung's
	x     []float32 // (T, H) residual stream
	out   []float32 // (T, H)

	gate, up, act, importance []float32 // (T, M) of one layer

	device *device // nil: by products over all tokens
}

// forwardBytes is what newForward allocates: for strips of at most t rows, and a cache of that many layers and positions.
func forwardBytes(w *weights, t, layers, positions int) int64 {
	c := w.c
	return model.BatchBytes(w.m, t) + 2*model.KVBytes(c, layers, positions, false) + 4*int64(t)*int64(2*c.Hidden+4*c.Intermediate)
}

func newForward(w *weights, t, layers, positions int) *forward {
	c := w.c
	f := func(n int) []float32 { return make([]float32, t*n) }
	return &forward{w: w, pool: w.m.Pool, batch: w.m.NewBatch(t),
		exact: model.NewKV(c, layers, positions, false), kv: model.NewKV(c, layers, positions, false),
		x: f(c.Hidden), out: f(c.Hidden), gate: f(c.Intermediate), up: f(c.Intermediate), act: f(c.Intermediate), importance: f(c.Intermediate)}
}

// layerKV is a layer's cache. Strips that do not continue one another share one layer's.
func layerKV(kv *model.KV, l int) model.LayerKV { return kv.Layers[min(l, len(kv.Layers)-1)] }

// attention adds a layer's attention to x (T, H), part by part, and writes its output to out (T, H) unless that is nil.
func (f *forward) attention(layer *model.Layer, x []float32, parts []part, kv model.LayerKV, out []float32) {
	h, row := f.w.c.Hidden, 0
	for _, p := range parts {
		if p.n == 0 {
			continue
		}
		y := f.batch.Attention(layer, x[row*h:(row+p.n)*h], p.n, kv, p.pos)
		if out != nil {
			copy(out[row*h:], y)
		}
		row += p.n
	}
}

// answer is what a pass says of a strip's targets.
type answer struct {
	logProbs []float64
	top      []int32 // the likeliest token
}

// score reads the answer off the stream x (T, H) behind the last layer.
func (f *forward) score(x []float32, st *strip) (*answer, error) {
	h, n := f.w.c.Hidden, len(st.rows)
	a := &answer{logProbs: make([]float64, n), top: make([]int32, n)}
	if n == 0 {
		return a, nil
	}
	for i, r := range st.rows {
		copy(f.out[i*h:(i+1)*h], x[r*h:(r+1)*h])
	}
	best := make([][]model.Ranked, n)
	f.batch.TopLogProbs(a.logProbs, best, 1, f.out, st.targets)
	for i := range best {
		if len(best[i]) > 0 {
			a.top[i] = best[i][0].ID
		}
	}
	return a, f.finite(a, st)
}

// finite refuses log-probabilities that no sum can be made of.
func (f *forward) finite(a *answer, st *strip) error {
	for i, v := range a.logProbs {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return format.Inputf("%s: token %d: the model's scores are not finite", f.w.b.Dir, st.rows[i]+1)
		}
	}
	return nil
}

// wants is what the rungs need of an exact pass.
type wants struct {
	dense    []int // ascending
	sites    []int // of the dense prefix that some selector looks at
	features bool
	gate0    []*selector
}

// wantsOf gathers it for some rungs.
func wantsOf(rs []Rung, sels map[selKey]*selector) wants {
	var w wants
	for _, r := range rs {
		if !slices.Contains(w.dense, r.Dense) {
			w.dense = append(w.dense, r.Dense)
		}
		s := sels[r.key()]
		if s == nil || r.Choice != Predicted {
			continue
		}
		for site, layers := range s.names {
			if site < 2*r.Dense && slices.ContainsFunc(layers, func(l int) bool { return l >= r.Dense }) && !slices.Contains(w.sites, site) {
				w.sites = append(w.sites, site)
			}
		}
		if s.NeedsLayer0() {
			w.features = true
			if s.gate0 != nil && !slices.Contains(w.gate0, s) {
				w.gate0 = append(w.gate0, s)
			}
		}
	}
	slices.Sort(w.dense)
	return w
}

// bytes is what shared keeps of a token.
func (w *wants) bytes(hidden int) int64 {
	n := len(w.dense) + len(w.sites)
	if w.features {
		n += 3
	}
	return 4 * int64(n*hidden+len(w.gate0))
}

// shared is what the rungs need of a strip's exact pass.
type shared struct {
	*strip
	in    map[int][]float32 // by d: the stream (T, H) at the input of layer d
	sites map[int][]float32 // by site (T, H)

	attn, mlpIn, resid []float32 // layer 0's features (T, H)
	gate0              map[*selector][]int32
	seed               [][]float32 // per layer from the smallest d: row 0's importance (M), if it is at position 0
}

// newShared makes room for what is wanted.
func newShared(st *strip, w *wants, h, layers int) *shared {
	s := &shared{strip: st, in: map[int][]float32{}, sites: map[int][]float32{}, gate0: map[*selector][]int32{}, seed: make([][]float32, layers)}
	if w.features {
		n := len(st.ids) * h
		s.attn, s.mlpIn, s.resid = make([]float32, n), make([]float32, n), make([]float32, n)
	}
	return s
}

// look keeps the stream at a site that is wanted.
func (s *shared) look(w *wants, site int, x []float32) {
	if slices.Contains(w.sites, site) {
		s.sites[site] = slices.Clone(x)
	}
}

// pass runs a strip through whole layers. full asks for the answer too; without it only what is wanted is computed.
func (f *forward) pass(ctx context.Context, st *strip, w *wants, full bool) (*shared, *answer, error) {
	if f.device == nil {
		return f.passBatch(ctx, st, w, full)
	}
	var a *answer
	var err error
	if full { // what is exact on a device runs by products too
		if _, a, err = f.passBatch(ctx, st, &wants{}, true); err != nil {
			return nil, nil, err
		}
	}
	if len(w.dense) == 0 {
		return nil, a, nil
	}
	s, err := f.passRows(ctx, st, w)
	return s, a, err
}

// passBatch is pass by products over all tokens.
func (f *forward) passBatch(ctx context.Context, st *strip, w *wants, full bool) (*shared, *answer, error) {
	c := f.w.c
	h, m, t, parts := c.Hidden, c.Intermediate, len(st.ids), st.parts
	x := f.x[:t*h]
	f.w.m.EmbedTokens(x, st.ids)
	s := newShared(st, w, h, c.Layers)
	last := -1
	if len(w.dense) > 0 {
		last = w.dense[len(w.dense)-1]
	}
	for l, layer := range f.w.m.Layers {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if slices.Contains(w.dense, l) {
			s.in[l] = slices.Clone(x)
		}
		if l >= last && !full {
			if !st.atZero() {
				break
			}
			t, x, parts = 1, x[:h], []part{{n: 1}} // the seeds of the layers that follow
		}
		rows, err := f.w.layer(l)
		if err != nil {
			return nil, nil, err
		}
		s.look(w, 2*l, x)
		var out []float32
		if l == 0 {
			out = s.attn
		}
		f.attention(layer, x, parts, layerKV(f.exact, l), out)
		s.look(w, predictor.MLPSite(l), x)
		in := f.batch.BeginMLP(layer, x, t)
		if l == 0 && w.features {
			copy(s.mlpIn, in)
		}
		seed := len(w.dense) > 0 && l >= w.dense[0] && st.atZero()
		if seed {
			s.seed[l] = make([]float32, m)
		}
		f.batch.MLPChunk(rows, 0, func(lo, hi int, gate, up []float32) {
			if l == 0 && len(w.gate0) > 0 {
				for i := range t {
					copy(f.gate[i*m+lo:i*m+hi], gate[i*(hi-lo):])
				}
			}
			if seed {
				seedImportance(s.seed[l][lo:hi], gate, up, f.w.norms[l][lo:hi])
			}
		})
		f.batch.EndMLP(x)
		if l == 0 && w.features {
			copy(s.resid, x)
			for _, sel := range w.gate0 {
				ids := make([]int32, t)
				for i := range ids {
					ids[i] = sel.gate0(f.gate[i*m : (i+1)*m])
				}
				s.gate0[sel] = ids
			}
		}
	}
	if !full {
		return s, nil, nil
	}
	a, err := f.score(x, st)
	return s, a, err
}

// seedImportance is |silu(g)·u|·‖down‖ as the engine has it for a prompt.
func seedImportance(dst, gate, up []float32, norms []float64) {
	for i := range dst {
		g := float64(gate[i])
		dst[i] = float32(math.Abs(g/(1+math.Exp(-g))*float64(up[i])) * norms[i])
	}
}

// bytesRead is what reading that many records moves.
func bytesRead(g bundle.Geometry, rows float64) float64 { return rows * float64(g.Stride) }
