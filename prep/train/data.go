package train

import (
	"path/filepath"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/runtime/predictor"
)

// data is the captured features and the tables' ids.
type data struct {
	c     *calib.Capture
	shape shape
	gate0 []uint16   // (T) layer 0's gate centroid of each token
	ids   [][]uint16 // per table (T)

	train, held []int32 // token indices
}

// load opens the stages' files. t is the network's width; 0 leaves it to DefaultDim.
func load(work string, cfg *checkpoint.Config, t int) (d *data, err error) {
	c, err := calib.OpenCapture(filepath.Join(work, "capture"), cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	d = &data{c: c, shape: shape{h: cfg.Hidden, t: t}}
	if d.shape.k0, d.gate0, err = tableIDs(work, c, 0, 0); err != nil {
		return nil, err
	}
	most := 0
	for l := 1; l < cfg.Layers; l++ {
		for p := range predictor.Projections {
			k, ids, err := tableIDs(work, c, p, l)
			if err != nil {
				return nil, err
			}
			d.shape.heads, d.ids = append(d.shape.heads, k), append(d.ids, ids)
			most = max(most, k)
		}
	}
	if t == 0 {
		d.shape.t = DefaultDim(cfg, most)
	}
	d.train, d.held = split(c.Windows())
	return d, nil
}

// load opens the stages' files.
func (o Options) load(work string) (*data, error) {
	if o.Joint {
		return loadJoint(work, o)
	}
	return load(work, o.Config, o.Dim)
}

// loadJoint is load for the joint vocabularies of the vocab stage, whose windows are some of the capture's.
func loadJoint(work string, o Options) (d *data, err error) {
	cfg := o.Config
	c, err := calib.OpenCapture(filepath.Join(work, "capture"), cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	x, err := calib.OpenJointIDs(work, c)
	if err != nil {
		return nil, err
	}
	d = &data{c: c, shape: shape{h: cfg.Hidden, t: o.Dim, tables: []string{predictor.JointTable}, first: x.First}}
	if d.shape.k0, d.gate0, err = tableIDs(work, c, 0, 0); err != nil {
		return nil, err
	}
	ws := make([]calib.Window, 0, len(x.Windows))
	for _, w := range x.Windows {
		if w.Len > 1 {
			ws = append(ws, calib.Window{Start: w.Start + 1, Len: w.Len - 1}) // position 0 has no id
		}
	}
	for _, ids := range x.IDs {
		all, at := make([]uint16, c.Tokens), 0
		for _, w := range x.Windows {
			for i := range w.Len {
				all[w.Start+i] = uint16(ids[at+i])
			}
			at += w.Len
		}
		d.shape.heads, d.ids = append(d.shape.heads, x.K), append(d.ids, all)
	}
	if o.Dim == 0 {
		d.shape.t = jointDim(cfg, d.shape.k0, len(d.ids), x.K)
	}
	d.train, d.held = split(ws)
	return d, nil
}

func tableIDs(work string, c *calib.Capture, proj, layer int) (k int, ids []uint16, err error) {
	t, err := calib.OpenTable(calib.TablePath(filepath.Join(work, "cluster"), proj, layer), c.Neurons, c.Tokens)
	if err != nil {
		return 0, nil, err
	}
	defer t.Close()
	wide, err := t.IDs()
	if err != nil {
		return 0, nil, err
	}
	ids = make([]uint16, len(wide))
	for i, id := range wide {
		ids[i] = uint16(id) // K ≤ predictor.MaxCentroids = 65,536
	}
	return t.K, ids, nil
}

// heldOut is the share of windows that training does not see: one in heldOut.
const heldOut = 10

// split holds out every tenth window; of two to nine windows, the last; of one window nothing.
func split(ws []calib.Window) (train, held []int32) {
	for i, w := range ws {
		out := i%heldOut == heldOut-1 || len(ws) < heldOut && len(ws) > 1 && i == len(ws)-1
		for t := w.Start; t < w.Start+w.Len; t++ {
			if out {
				held = append(held, int32(t))
			} else {
				train = append(train, int32(t))
			}
		}
	}
	return train, held
}

// fill loads the tokens into a batch.
func (d *data) fill(b *batch, tokens []int32) {
	b.n = len(tokens)
	h := d.shape.h
	b.each(func(i int) {
		t := int(tokens[i])
		for j := range b.in {
			d.c.Feature(j, t, b.in[j][i*h:(i+1)*h])
		}
		b.gate0[i] = int32(d.gate0[t])
		for c := range b.want {
			b.want[c][i] = int32(d.ids[c][t])
		}
	})
}

// prior counts each table's ids over the training tokens.
func (d *data) prior() [][]int {
	n := make([][]int, len(d.ids))
	for c, k := range d.shape.heads {
		n[c] = make([]int, k)
		for _, t := range d.train {
			n[c][d.ids[c][t]]++
		}
	}
	return n
}
