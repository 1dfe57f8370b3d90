package threshold

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
)

// maxTokens is how much text the stage looks at: windows spread evenly over what capture will take.
const maxTokens = 32_768

// Options of the threshold stage.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string // text files, joined in this order
	Tokens     int      // tokens of text that capture will use; 0 = all there are, at most calib.DefaultTokens
	Window     int      // tokens per window; 0 = 512, at most the model's context
	Shard      stage.Shard
	Group      int // tokens that pass a layer together; 0 = forward.GroupTokens. It changes no result.

	atMost bool // a shorter text is fine
}

type params struct {
	Tokens, Window, Spread int
}

// Run counts magnitudes. The counters do not depend on a density; capture derives the thresholds. A group of windows is
// a unit that an interrupted run need not do again.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	var err error
	o.atMost = o.Tokens == 0
	if o.Tokens, o.Window, err = calib.Sizes(o.Checkpoint.Config, o.Tokens, o.Window); err != nil {
		return stage.Report{}, err
	}
	if o.Group == 0 {
		o.Group = forward.GroupTokens
	}
	hash, err := text.Hash(o.Texts)
	if err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{
		Name: "threshold", Version: 1,
		Inputs: append([]string{hash}, o.Checkpoint.Files()...),
		Params: params{o.Tokens, o.Window, maxTokens},
		Shard:  o.Shard,
		Merge: func(_ context.Context, dir string, shards []stage.Part, _ *stage.Progress) (map[string]any, error) {
			return merge(o.Checkpoint.Config.Layers, dir, shards)
		},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, dir, p)
	})
}

// Check refuses sizes and text that Run would refuse, before other stages do long work. The text is tokenised only
// where its length matters.
func Check(o Options) error {
	tokens, window, err := calib.Sizes(o.Checkpoint.Config, o.Tokens, o.Window)
	if err != nil {
		return err
	}
	if o.Tokens == 0 {
		return text.Check(o.Texts)
	}
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		return err
	}
	_, err = txt.Cut(tokens, window)
	return err
}

func run(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) (map[string]any, error) {
	cfg := o.Checkpoint.Config
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		return nil, err
	}
	if o.atMost {
		o.Tokens = min(o.Tokens, len(txt.Tokens))
	}
	ws, err := txt.Cut(o.Tokens, o.Window)
	if err != nil {
		return nil, err
	}
	ws = calib.Spread(ws, (maxTokens+o.Window-1)/o.Window)
	lo, hi, err := o.Shard.Cut(len(ws), "windows")
	if err != nil {
		return nil, err
	}
	ws = ws[lo:hi]
	groups := calib.Groups(ws, o.Group)
	// Names tell how the windows were grouped: units of another grouping are not found.
	unit := func(i int) string {
		return filepath.Join(dir, fmt.Sprintf(".counts-%d-%05d.safetensors", o.Group, i))
	}
	walker, err := newWalker(e, o, groups)
	if err != nil {
		return nil, err
	}
	p.Start("threshold", int64(calib.Tokens(ws))*int64(cfg.Layers), "token·layers")
	for i, g := range groups {
		if calib.Sealed(unit(i)) {
			p.Add(int64(calib.Tokens(g)) * int64(cfg.Layers))
			continue
		}
		counts, err := count(ctx, e, walker, txt, g, p)
		if err != nil {
			return nil, err
		}
		if err := calib.WriteCounts(unit(i), counts, nil); err != nil {
			return nil, err
		}
		if err := calib.Seal(unit(i)); err != nil {
			return nil, err
		}
	}
	p.Done()
	sum := calib.NewCounts(cfg.Layers)
	for i := range groups {
		c, err := calib.ReadCounts(unit(i), cfg.Layers)
		if err != nil {
			return nil, err
		}
		sum.Add(c)
	}
	if err := calib.WriteCounts(filepath.Join(dir, calib.CountsFile), sum, nil); err != nil {
		return nil, err
	}
	if n := walker.Underflow(); len(n) > 0 {
		e.Note("threshold: weights of %d tensors lost bits in float16", len(n))
	}
	return map[string]any{"tokens": calib.Tokens(ws), "windows": len(ws), "text_tokens": len(txt.Tokens), "text_sha256": txt.Hash}, nil
}

// merge adds the shards' counters up.
func merge(layers int, dir string, shards []stage.Part) (map[string]any, error) {
	sum := calib.NewCounts(layers)
	tokens, windows := 0, 0
	for _, s := range shards {
		c, err := calib.ReadCounts(filepath.Join(s.Dir, calib.CountsFile), layers)
		if err != nil {
			return nil, err
		}
		sum.Add(c)
		tokens, windows = tokens+s.Int("tokens"), windows+s.Int("windows")
	}
	if err := calib.WriteCounts(filepath.Join(dir, calib.CountsFile), sum, nil); err != nil {
		return nil, err
	}
	return map[string]any{"tokens": tokens, "windows": windows, "text_tokens": shards[0].Int("text_tokens"), "text_sha256": shards[0].Values["text_sha256"]}, nil
}

// newWalker holds the stage's needs against the budget.
func newWalker(e *stage.Env, o Options, groups [][]calib.Window) (*forward.Walker, error) {
	cfg := o.Checkpoint.Config
	most := 0
	for _, g := range groups {
		most = max(most, calib.Tokens(g))
	}
	stream := 4 * int64(most) * int64(cfg.Hidden)
	counters := int64(cfg.Layers*2+2*e.Pool.Threads()) * calib.Buckets * 8
	if err := forward.Check(cfg, o.Window, e.Memory, stream+counters, "threshold"); err != nil {
		return nil, err
	}
	return forward.New(o.Checkpoint, e.Pool, o.Window, e.Memory, stream+counters)
}

// count runs one group through all layers.
func count(ctx context.Context, e *stage.Env, w *forward.Walker, txt *text.Text, ws []calib.Window, p *stage.Progress) (calib.Counts, error) {
	g := w.Begin(txt.Tokens, ws)
	c := newCounter(e.Pool)
	counts := calib.NewCounts(w.Model.Config.Layers)
	for l := range counts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := g.Layer(l, &forward.Taps{MLP: c.tap})
		if bad := c.bad; bad != nil && (err == nil || errors.As(err, new(*forward.NonFinite))) {
			bad.Layer = l
			err = bad
		}
		if err != nil {
			return nil, g.Explain(err, txt.Source)
		}
		c.collect(counts[l])
		p.Add(int64(calib.Tokens(ws)))
	}
	return counts, nil
}
