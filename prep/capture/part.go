package capture

import (
	"context"
	"io"
	"path/filepath"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// part is one part of the text on its way to its files.
type part struct {
	pool   *kernels.Pool
	walker *forward.Walker
	meta   *calib.Meta
	txt    *text.Text
	p      *stage.Progress
	g      *forward.Group
	t      int // tokens

	masks      [2][]uint64 // (T, W) of the layer at hand
	feat       [4][]uint16 // (T, H) of layer 0
	all, first []float64   // (N, M) sums of importance: all tokens, and those at position 0
	act        []float32   // (t, n) |silu(g)·u| of a window and chunk
	sum        []float32   // (n) their sums
	norms      []float32   // (M) ‖down‖₂ of the layer at hand
	gateT, upT float32     // thresholds of the layer at hand
	layer      int
}

func newPart(pool *kernels.Pool, walker *forward.Walker, meta *calib.Meta, txt *text.Text, ws []calib.Window, p *stage.Progress) *part {
	t, w := calib.Tokens(ws), predictor.Words(meta.Neurons)
	pt := &part{pool: pool, walker: walker, meta: meta, txt: txt, p: p, t: t, g: walker.Begin(txt.Tokens, ws)}
	for i := range pt.masks {
		pt.masks[i] = make([]uint64, t*w)
	}
	for j := range pt.feat {
		pt.feat[j] = make([]uint16, t*meta.Hidden)
	}
	pt.all, pt.first = make([]float64, meta.Layers*meta.Neurons), make([]float64, meta.Layers*meta.Neurons)
	pt.norms = make([]float32, meta.Neurons)
	return pt
}

// write streams the part to its two files. The masks file asks for its tensors in layer order, and asking for a layer's
// gate masks runs the layer; the features file is written as soon as layer 0 has run. So the masks file, which gets its
// name last, is there only when both are whole.
func (pt *part) write(ctx context.Context, dir string, i int) error {
	m, w := pt.meta, predictor.Words(pt.meta.Neurons)
	var entries []tensors.Entry
	for l := range m.Layers {
		for p := range predictor.Projections {
			entries = append(entries, tensors.Entry{
				Name: predictor.TableName(p, l), DType: "U64", Shape: []int{pt.t, w},
				Write: func(out io.Writer) error {
					if p == 0 {
						if err := pt.run(ctx, dir, i, l); err != nil {
							return err
						}
					}
					_, err := out.Write(kernels.U64Bytes(pt.masks[p]))
					return err
				},
			})
		}
	}
	entries = append(entries,
		calib.F64Entry(calib.ImportanceName, []int{m.Layers, m.Neurons}, pt.all),
		calib.F64Entry(calib.Importance0Name, []int{m.Layers, m.Neurons}, pt.first))
	return tensors.Write(filepath.Join(dir, calib.MasksFile(i)), entries, nil)
}

// run takes the part through layer l.
func (pt *part) run(ctx context.Context, dir string, i, l int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := pt.begin(l); err != nil {
		return err
	}
	taps := &forward.Taps{MLP: pt.tap}
	if l == 0 {
		taps.Before, taps.Attn, taps.MLPIn, taps.After = pt.feature(0), pt.feature(1), pt.feature(2), pt.feature(3)
	}
	if err := pt.g.Layer(l, taps); err != nil {
		return pt.g.Explain(err, pt.txt.Source)
	}
	pt.p.Add(int64(pt.t))
	if l > 0 {
		return nil
	}
	var entries []tensors.Entry
	for j, f := range pt.feat {
		entries = append(entries, tensors.F16Entry(calib.FeatureName(j), []int{pt.t, pt.meta.Hidden}, f))
	}
	err := tensors.Write(filepath.Join(dir, calib.FeaturesFile(i)), entries, nil)
	pt.feat = [4][]uint16{}
	return err
}
