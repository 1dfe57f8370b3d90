package moments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Name of the stage and of its folder.
const Name = "moments"

const (
	perInput  = 48      // tokens per element of the hidden size when nothing else is said,
	minTokens = 16_384  // at least
	maxTokens = 196_608 // and at most
	partSize  = 8_192   // tokens of a part
)

// DefaultLags are the lags that regress can choose from when nothing else is said.
var DefaultLags = []int{2, 3}

// Options of the moments stage.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string     // text files, joined in this order
	Tokens     int          // at most; 0 = 48·H within 16,384 and 196,608. Windows are spread over the whole text
	Window     int          // tokens per window; 0 = 512, at most the model's context
	Lags       []int        // nil = DefaultLags
	Extra      []calib.Pair // sources besides, of some layers
	Shard      stage.Shard
	Part       int // tokens per part; 0 = 8,192. It changes no result.
}

type params struct {
	Tokens, Window int
	Lags           []int
	Extra          []calib.Pair `json:",omitempty"`
}

// Check refuses options before anything is run.
func (o Options) Check() error { return o.defaults() }

func (o *Options) defaults() error {
	cfg := o.Checkpoint.Config
	if o.Tokens == 0 {
		o.Tokens = min(max((perInput*cfg.Hidden+4095)&^4095, minTokens), maxTokens)
	}
	var err error
	if o.Tokens, o.Window, err = calib.Sizes(cfg, o.Tokens, o.Window); err != nil {
		return err
	}
	if o.Window < 2 {
		return format.Inputf("windows of %d token: position 0 is left out, so at least 2 are needed", o.Window)
	}
	if len(o.Lags) == 0 {
		o.Lags = DefaultLags
	}
	o.Lags = slices.Compact(slices.Sorted(slices.Values(o.Lags)))
	if o.Lags[0] < 1 || o.Lags[len(o.Lags)-1] > predictor.MaxLag {
		return format.Inputf("lags %v: must be 1 to %d", o.Lags, predictor.MaxLag)
	}
	for _, p := range o.Extra {
		if p.Layer < 1 || p.Layer >= cfg.Layers || p.Site < 0 || p.Site >= predictor.MLPSite(p.Layer) {
			return format.Inputf("site %d cannot name layer %d of %d", p.Site, p.Layer, cfg.Layers)
		}
	}
	if o.Part == 0 {
		o.Part = partSize
	}
	return nil
}

// Run sums the moments.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := o.defaults(); err != nil {
		return stage.Report{}, err
	}
	hash, err := text.Hash(o.Texts)
	if err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{
		Name: Name, Version: 2,
		Inputs: append([]string{hash}, o.Checkpoint.Files()...),
		Params: params{o.Tokens, o.Window, o.Lags, o.Extra},
		Shard:  o.Shard,
		Merge: func(ctx context.Context, dir string, shards []stage.Part, p *stage.Progress) (map[string]any, error) {
			return merge(ctx, o.Checkpoint.Config, dir, shards, p)
		},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, dir, p)
	})
}

func run(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) (map[string]any, error) {
	cfg := o.Checkpoint.Config
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		return nil, err
	}
	o.Tokens = min(o.Tokens, len(txt.Tokens))
	ws, err := windows(txt, o.Tokens, o.Window)
	if err != nil {
		return nil, err
	}
	grid := gridFor(calib.Tokens(ws), cfg.Hidden) // of all shards
	lo, hi, err := o.Shard.Cut(len(ws), "windows")
	if err != nil {
		return nil, err
	}
	ws = ws[lo:hi]
	meta := &calib.MomentsMeta{Layers: cfg.Layers, Hidden: cfg.Hidden, Tokens: calib.Tokens(ws) - len(ws), Window: o.Window, Lags: o.Lags, Extra: o.Extra, Text: txt.Hash}
	if meta.Tokens < 1 {
		return nil, format.Hint(format.Inputf("calibration text has %d tokens: moments need at least 2, and about %d to hold for other text", len(txt.Tokens), 10*cfg.Hidden), "name more --text files")
	}
	parts := calib.Groups(ws, o.Part)
	need := partBytes(meta, calib.Tokens(parts[0]))
	if err := forward.Check(cfg, o.Window, e.Memory, need, Name); err != nil {
		return nil, err
	}
	begun, left := resume(dir, len(parts))
	if err := format.CheckSpace(dir, min(2, int64(len(parts)-begun))*fileBytes(meta)-left); err != nil {
		return nil, err
	}
	walker, err := forward.New(o.Checkpoint, e.Pool, o.Window, e.Memory, need)
	if err != nil {
		return nil, err
	}
	p.Start(Name, int64(calib.Tokens(ws))*int64(cfg.Layers), "token·layers")
	for i, ws := range parts {
		if i < begun {
			p.Add(int64(calib.Tokens(ws)) * int64(cfg.Layers))
			continue
		}
		pt := newPart(e.Pool, walker, meta, grid, txt, ws, p)
		if err := pt.write(ctx, dir, i); err != nil {
			return nil, err
		}
		if err := calib.Seal(total(dir, i)); err != nil {
			return nil, err
		}
		if i > 0 {
			if err := os.Remove(total(dir, i-1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, format.IOf("%w", err)
			}
		}
	}
	p.Done()
	if err := os.Rename(total(dir, len(parts)-1), filepath.Join(dir, calib.MomentsFile)); err != nil {
		return nil, format.IOf("%w", err)
	}
	return finish(dir, meta, len(ws), cfg)
}

// finish writes the description, looks at the file as its readers will, and reports.
func finish(dir string, meta *calib.MomentsMeta, windows int, cfg *checkpoint.Config) (map[string]any, error) {
	if err := writeMeta(dir, meta); err != nil {
		return nil, err
	}
	m, err := calib.OpenMoments(dir, cfg)
	if err != nil {
		return nil, err
	}
	m.Close()
	return map[string]any{"tokens": meta.Tokens, "windows": windows, "lags": meta.Lags, "text_sha256": meta.Text, "per_input": float64(meta.Tokens) / float64(meta.Hidden)}, nil
}

// windows are spread over the whole text; a last one of a single token, which would add nothing, is left out.
func windows(txt *text.Text, tokens, window int) ([]calib.Window, error) {
	all, err := txt.Cut(len(txt.Tokens), window)
	if err != nil {
		return nil, err
	}
	if n := len(all) - 1; n > 0 && all[n].Len < 2 {
		all = all[:n]
	}
	return calib.Spread(all, (tokens+window-1)/window), nil
}

// total is the file of the sums over parts 0..i.
func total(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf(".total-%05d.safetensors", i))
}

// resume finds the last whole total and removes the others. It returns how many parts are done and their file's size.
func resume(dir string, parts int) (done int, bytes int64) {
	for i := parts - 1; i >= 0; i-- {
		path := total(dir, i)
		if done == 0 && calib.Sealed(path) {
			done = i + 1
			if st, err := os.Stat(path); err == nil {
				bytes = st.Size()
			}
			continue
		}
		_ = os.Remove(path) // a leftover that cannot be removed is overwritten
	}
	return done, bytes
}

func writeMeta(dir string, meta *calib.MomentsMeta) error {
	b, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return err
	}
	return format.WriteFileAtomic(filepath.Join(dir, calib.MomentsMetaFile), func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", b)
		return err
	})
}

// partBytes is what a part of t tokens holds besides the walker: the residual stream, the normed streams that a lag can
// ask for, and one matrix of moments in float32 and float64.
func partBytes(m *calib.MomentsMeta, t int) int64 {
	h, last, most := int64(m.Hidden), m.LastUse(), 0
	for l := range m.Layers {
		live := 0
		for _, until := range last[:2*l+2] {
			if until >= l {
				live++
			}
		}
		most = max(most, live)
	}
	return int64(t)*h*4*int64(most+1) + 12*h*h
}

// fileBytes is a file of sums.
func fileBytes(m *calib.MomentsMeta) int64 {
	h, n := int64(m.Hidden), int64(0)
	for _, used := range m.Sites() {
		if used {
			n += h*h + h
		}
	}
	for l := range m.Layers {
		n += int64(len(m.Pairs(l))) * h * h
	}
	return 8 * n
}
