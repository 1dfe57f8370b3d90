package moments

import (
	"context"
	"io"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// block is how many tokens of a window at most are summed in float32 before they go into a float64 sum.
const block = 512

// part is one part of the text on its way to its file.
type part struct {
	pool   *kernels.Pool
	walker *forward.Walker
	meta   *calib.MomentsMeta
	txt    *text.Text
	p      *stage.Progress
	g      *forward.Group
	t      int    // tokens
	begins []bool // (T) token is at position 0 of its window
	blocks []calib.Window
	grid   grid

	layer  int               // layers run so far
	last   []int             // per site: the last layer that asks for it, −1 if none does
	sites  map[int][]float32 // (T, H) normed stream, rows at position 0 zero
	free   [][]float32       // buffers of sites that nothing asks for any more
	block  []float32         // (H, H)
	sum    []float64         // (H, H)
	before *tensors.File     // sums over the parts before; nil for the first
}

func newPart(pool *kernels.Pool, walker *forward.Walker, meta *calib.MomentsMeta, g grid, txt *text.Text, ws []calib.Window, p *stage.Progress) *part {
	t, h := calib.Tokens(ws), meta.Hidden
	pt := &part{pool: pool, walker: walker, meta: meta, txt: txt, p: p, t: t, g: walker.Begin(txt.Tokens, ws), grid: g,
		begins: make([]bool, t), last: meta.LastUse(), sites: map[int][]float32{}, block: make([]float32, h*h), sum: make([]float64, h*h)}
	row := 0
	for _, w := range ws {
		pt.begins[row] = true
		for at := 0; at < w.Len; at += block {
			pt.blocks = append(pt.blocks, calib.Window{Start: row + at, Len: min(block, w.Len-at)})
		}
		row += w.Len
	}
	return pt
}

// write streams the sums over this part and those before to a file. Its tensors come in the order of the layers that
// they need, and asking for one runs the model that far.
func (pt *part) write(ctx context.Context, dir string, i int) error {
	if i > 0 {
		f, err := tensors.Open(total(dir, i-1))
		if err != nil {
			return err
		}
		defer f.Close()
		pt.before = f
	}
	h := pt.meta.Hidden
	var entries []tensors.Entry
	for _, t := range tensorsOf(pt.meta) {
		n := h
		if len(t.shape) == 2 {
			n = h * h
		}
		entries = append(entries, tensors.Entry{Name: t.name, DType: "F64", Shape: t.shape, Write: func(w io.Writer) error {
			if err := pt.run(ctx, t.layer); err != nil {
				return err
			}
			dst := pt.sum[:n]
			clear(dst)
			if pt.before != nil {
				if err := calib.RawF64(pt.before, t.name, dst); err != nil {
					return err
				}
				pt.before.Release(t.name)
			}
			if n == h {
				pt.sums(dst, t.src)
			} else {
				pt.product(dst, t.src, t.dst)
			}
			return calib.F64Entry(t.name, t.shape, dst).Write(w)
		}})
	}
	return tensors.Write(total(dir, i), entries, nil)
}

// sumOf is a tensor of the file.
type sumOf struct {
	name     string
	shape    []int
	layer    int // that must have run
	src, dst int // sites
}

// tensorsOf lists the file's tensors in the order of the layers that they need.
func tensorsOf(m *calib.MomentsMeta) (all []sumOf) {
	h, last := m.Hidden, m.LastUse()
	for l := range m.Layers {
		for s := 2 * l; s <= 2*l+1; s++ {
			if last[s] >= 0 {
				all = append(all, sumOf{calib.SumName(s), []int{h}, l, s, s}, sumOf{calib.GramName(s), []int{h, h}, l, s, s})
			}
		}
		for _, s := range m.Pairs(l) {
			t := predictor.MLPSite(l)
			all = append(all, sumOf{calib.CrossName(s, t), []int{h, h}, l, s, t})
		}
	}
	return all
}

// run takes the part through layer l, and drops the streams that no layer from l on asks for.
func (pt *part) run(ctx context.Context, l int) error {
	for ; pt.layer <= l; pt.layer++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		for s, x := range pt.sites {
			if pt.last[s] < pt.layer {
				pt.free = append(pt.free, x)
				delete(pt.sites, s)
			}
		}
		h, at := pt.meta.Hidden, pt.layer
		taps := &forward.Taps{
			Before: func(row int, x []float32) { pt.keep(2*at, row, x) },
			MLPIn: func(row int, in []float32) { // the stream itself has the attention's output added by now
				pt.keep(2*at+1, row, pt.g.X[row*h:row*h+len(in)])
			},
		}
		if err := pt.g.Layer(pt.layer, taps); err != nil {
			return pt.g.Explain(err, pt.txt.Source)
		}
		pt.p.Add(int64(pt.t))
	}
	return nil
}

// keep norms a window of the stream.
func (pt *part) keep(site, row int, x []float32) {
	if pt.last[site] < 0 {
		return
	}
	h := pt.meta.Hidden
	dst := pt.sites[site]
	if dst == nil {
		if n := len(pt.free); n > 0 {
			dst, pt.free = pt.free[n-1], pt.free[:n-1]
		} else {
			dst = make([]float32, pt.t*h)
		}
		pt.sites[site] = dst
	}
	eps := float32(pt.walker.Model.Config.RMSEps)
	pt.pool.Run(len(x)/h, 8, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y := dst[(row+i)*h : (row+i+1)*h]
			if pt.begins[row+i] {
				clear(y)
			} else {
				kernels.RMSNorm(y, x[i*h:(i+1)*h], nil, eps)
			}
		}
	})
}

// product adds Σ x_s·x_tᵀ to dst (H, H), block by block.
func (pt *part) product(dst []float64, s, t int) {
	h, a, b := pt.meta.Hidden, pt.sites[s], pt.sites[t]
	for _, w := range pt.blocks {
		x, y := kernels.F32Matrix(a[w.Start*h:], w.Len, h, h), kernels.F32Matrix(b[w.Start*h:], w.Len, h, h)
		kernels.Gemm(pt.pool, kernels.F32Matrix(pt.block, h, h, h), x.T(), y, false)
		pt.pool.Run(h*h, 4096, func(lo, hi int) {
			for i, v := range pt.block[lo:hi] {
				dst[lo+i] += pt.grid.round(float64(v))
			}
		})
	}
}

// sums adds Σ x_s to dst (H), block by block.
func (pt *part) sums(dst []float64, s int) {
	h, sum := pt.meta.Hidden, make([]float64, pt.meta.Hidden)
	for _, w := range pt.blocks {
		clear(sum)
		for i, v := range pt.sites[s][w.Start*h : (w.Start+w.Len)*h] {
			sum[i%h] += float64(v)
		}
		for i, v := range sum {
			dst[i] += pt.grid.round(v)
		}
	}
}
