package forward

import (
	"errors"
	"fmt"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/runtime/model"
)

// GroupTokens is how many tokens a group has, to the next window.
const GroupTokens = 16_384

// unstated is the budget for keeping layers when no --memory is given.
const unstated = 4 << 30

// Walker holds a checkpoint's embedding and as many of its layers as the budget allows.
type Walker struct {
	Model *model.Model

	ck     *checkpoint.Checkpoint
	src    *model.CheckpointSource
	window int
	keep   bool
	kept   map[int]loaded
	rows   []uint16 // the one record block when layers are not kept
	batch  *model.Batch
	kv     *model.KV
}

type loaded struct {
	layer *model.Layer
	rows  model.Rows
}

// LayerBytes is what one loaded layer takes.
func LayerBytes(c *checkpoint.Config) int64 {
	h, q, kv := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	return 2 * (h*(2*q+2*kv) + 3*h*int64(c.Intermediate))
}

// New reads the embedding and makes working memory for windows of at most window tokens. used is what the caller needs
// besides, of a budget of memory bytes (0: none stated).
func New(ck *checkpoint.Checkpoint, pool *kernels.Pool, window int, memory, used int64) (*Walker, error) {
	c := ck.Config
	w := &Walker{Model: model.New(c, pool), ck: ck, src: &model.CheckpointSource{C: ck}, window: window, kept: map[int]loaded{}}
	w.Model.Embed = make([]uint16, c.Vocab*c.Hidden)
	const embed = "model.embed_tokens.weight"
	if err := w.src.Halves(w.Model.Embed, embed); err != nil {
		return nil, err
	}
	ck.Release(embed)
	w.batch, w.kv = w.Model.NewBatch(window), model.NewKV(c, 1, window, false)
	if memory == 0 {
		memory = unstated
	}
	w.keep = Fixed(c, w.Model, window)+int64(c.Layers-1)*LayerBytes(c)+used <= memory
	return w, nil
}

// Fixed is what a walker takes with one layer loaded: embedding, layer, the matrix that is being transposed, and the
// working memory of a window.
func Fixed(c *checkpoint.Config, m *model.Model, window int) int64 {
	matrix := 2 * int64(c.Hidden) * int64(c.Intermediate)
	return 2*int64(c.Vocab)*int64(c.Hidden) + LayerBytes(c) + matrix + model.BatchBytes(m, window) + model.KVBytes(c, 1, window, false)
}

// Check refuses a budget that cannot hold a walker and what the caller needs besides.
func Check(c *checkpoint.Config, window int, memory, used int64, what string) error {
	fixed := Fixed(c, model.New(c, nil), window)
	if memory > 0 && fixed+used > memory {
		return format.Hint(format.Fitf("%s needs %s: embedding, one layer and a window's working memory %s, a group of windows %s; --memory is %s",
			what, format.IEC(fixed+used), format.IEC(fixed), format.IEC(used), format.IEC(memory)), "raise --memory")
	}
	return nil
}

// Underflow is how many weights of which tensors lost bits in float16.
func (w *Walker) Underflow() map[string]int64 { return w.src.Underflow }

// LoadHead reads the final norm and the head, which only a pass to the vocabulary needs: HeadBytes.
func (w *Walker) LoadHead() error {
	c := w.Model.Config
	w.Model.Norm, w.Model.Head = make([]float32, c.Hidden), w.Model.Embed
	if err := w.src.Floats(w.Model.Norm, "model.norm.weight"); err != nil || c.Tied {
		return err
	}
	w.Model.Head = make([]uint16, c.Vocab*c.Hidden)
	defer w.ck.Release(w.ck.HeadName())
	return w.src.Halves(w.Model.Head, w.ck.HeadName())
}

// HeadBytes is what LoadHead takes.
func HeadBytes(c *checkpoint.Config) int64 {
	if c.Tied {
		return 4 * int64(c.Hidden)
	}
	return 4*int64(c.Hidden) + 2*int64(c.Vocab)*int64(c.Hidden)
}

// Load returns a layer; without room for all it overwrites the one before.
func (w *Walker) Load(l int) (*model.Layer, model.Rows, error) {
	if k, ok := w.kept[l]; ok {
		return k.layer, k.rows, nil
	}
	layer, err := model.LoadLayer(w.ck.Config, w.src, l, nil)
	if err != nil {
		return nil, model.Rows{}, err
	}
	rows, err := model.LoadRows(w.ck.Config, w.src, l, w.rows)
	if err != nil {
		return nil, model.Rows{}, err
	}
	for _, name := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
		w.ck.Release(fmt.Sprintf("model.layers.%d.%s.weight", l, name))
	}
	if w.keep {
		w.kept[l] = loaded{layer, rows}
	} else {
		w.rows = rows.Mem
	}
	return layer, rows, nil
}

// Group is some windows on their way through the layers.
type Group struct {
	Windows []calib.Window
	X       []float32 // (T, H) residual stream, windows one after the other

	w *Walker
}

// Begin embeds the windows of the text's tokens.
func (w *Walker) Begin(tokens []int32, ws []calib.Window) *Group {
	h := w.Model.Config.Hidden
	g := &Group{Windows: ws, X: make([]float32, calib.Tokens(ws)*h), w: w}
	row := 0
	for _, win := range ws {
		w.Model.EmbedTokens(g.X[row*h:(row+win.Len)*h], tokens[win.Start:win.Start+win.Len])
		row += win.Len
	}
	return g
}

// Taps see what a layer does to a window whose first token is row row of the group. Any may be nil; slices are the
// walker's.
type Taps struct {
	Before func(row int, x []float32)   // (t, H) the layer's input
	Attn   func(row int, out []float32) // (t, H) attention output
	MLPIn  func(row int, in []float32)  // (t, H) normed MLP input
	MLP    func(row, t, lo, hi int, gate, up []float32)
	After  func(row int, x []float32) // (t, H) the layer's output
}

// NonFinite is an activation that is infinite or not a number.
type NonFinite struct {
	Layer, Row int // row of the group
	What       string
}

func (e *NonFinite) Error() string {
	return fmt.Sprintf("layer %d: %s is not finite at row %d", e.Layer, e.What, e.Row)
}

// Token is the position in the text, and in its window, of a row of the group.
func (g *Group) Token(row int) (token, position int) {
	for _, w := range g.Windows {
		if row < w.Len {
			return w.Start + row, row
		}
		row -= w.Len
	}
	return -1, -1
}

// Explain names the token and the text file of an activation that is not finite; other errors stay as they are. source
// names the file that a token of the text came from.
func (g *Group) Explain(err error, source func(token int) string) error {
	var bad *NonFinite
	if !errors.As(err, &bad) {
		return err
	}
	token, pos := g.Token(bad.Row)
	return format.Hint(format.Inputf("layer %d: %s is not finite at token %d (position %d of its window) of the calibration text, in %s",
		bad.Layer, bad.What, token, pos, source(token)), "the checkpoint's weights overflow on this text; check that it is whole")
}

// Layer runs every window through layer l.
func (g *Group) Layer(l int, taps *Taps) error {
	layer, rows, err := g.w.Load(l)
	if err != nil {
		return err
	}
	b, h, row := g.w.batch, g.w.Model.Config.Hidden, 0
	for _, win := range g.Windows {
		t := win.Len
		x := g.X[row*h : (row+t)*h]
		if taps.Before != nil {
			taps.Before(row, x)
		}
		out := b.Attention(layer, x, t, g.w.kv.Layers[0], 0)
		if taps.Attn != nil {
			taps.Attn(row, out)
		}
		in := b.BeginMLP(layer, x, t)
		if taps.MLPIn != nil {
			taps.MLPIn(row, in)
		}
		var tap model.MLPTap
		if taps.MLP != nil {
			first := row
			tap = func(lo, hi int, gate, up []float32) { taps.MLP(first, t, lo, hi, gate, up) }
		}
		b.MLPChunk(rows, 0, tap)
		b.EndMLP(x)
		if taps.After != nil {
			taps.After(row, x)
		}
		for i := range t {
			if !Finite(x[i*h : (i+1)*h]) {
				return &NonFinite{l, row + i, "the layer's output"}
			}
		}
		row += t
	}
	return nil
}

// Finite reports whether all of x is.
func Finite(x []float32) bool {
	bad := float32(0)
	for _, v := range x {
		bad += v * 0 // zero unless v is infinite or not a number
	}
	return bad == 0
}
