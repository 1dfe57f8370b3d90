package capture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// DefaultDensity is the share of neurons that a token's masks have.
const DefaultDensity = 0.40

// Options of the capture stage, which needs the threshold stage's output in the same work folder.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string // text files, joined in this order
	Tokens     int      // 0 = all there are, at most calib.DefaultTokens
	Window     int      // tokens per window; 0 = 512, at most the model's context
	Density    float64  // token density; 0 = DefaultDensity
	Part       int      // tokens per part; 0 = forward.GroupTokens
	Shard      stage.Shard

	atMost bool // a shorter text is fine
}

type params struct {
	Tokens, Window, Part int
	Density              float64
}

// Run captures masks, features and importance sums.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	var err error
	o.atMost = o.Tokens == 0
	if o.Tokens, o.Window, err = calib.Sizes(o.Checkpoint.Config, o.Tokens, o.Window); err != nil {
		return stage.Report{}, err
	}
	if o.Density == 0 {
		o.Density = DefaultDensity
	}
	if !(o.Density > 0 && o.Density <= 1) {
		return stage.Report{}, format.Inputf("token density %v: must be above 0 and at most 1", o.Density)
	}
	if o.Part == 0 {
		o.Part = forward.GroupTokens
	}
	outputs, err := e.Outputs("threshold")
	if err != nil {
		return stage.Report{}, err
	}
	hash, err := text.Hash(o.Texts)
	if err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{
		Name: "capture", Version: 1,
		Inputs: append([]string{hash, calib.Digest(outputs)}, o.Checkpoint.Files()...),
		Params: params{o.Tokens, o.Window, o.Part, o.Density},
		Reads:  []string{"threshold"},
		Shard:  o.Shard,
		Merge: func(_ context.Context, dir string, shards []stage.Part, _ *stage.Progress) (map[string]any, error) {
			return merge(o.Checkpoint.Config, dir, shards)
		},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, dir, p)
	})
}

func run(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) (map[string]any, error) {
	cfg := o.Checkpoint.Config
	counts, err := calib.ReadCounts(filepath.Join(e.Work, "threshold", calib.CountsFile), cfg.Layers)
	if err != nil {
		return nil, err
	}
	meta := calib.Meta{
		Layers: cfg.Layers, Hidden: cfg.Hidden, Neurons: cfg.Intermediate, Tokens: o.Tokens, Window: o.Window,
		Density: o.Density, Thresholds: counts.At(o.Density),
	}
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		return nil, err
	}
	if o.atMost {
		o.Tokens = min(o.Tokens, len(txt.Tokens))
		meta.Tokens = o.Tokens
	}
	meta.Text = txt.Hash
	ws, err := txt.Cut(o.Tokens, o.Window)
	if err != nil {
		return nil, err
	}
	parts := calib.Groups(ws, o.Part)
	for _, ws := range parts {
		meta.PartTokens = append(meta.PartTokens, calib.Tokens(ws))
	}
	first, last, err := o.Shard.Cut(len(parts), "parts")
	if err != nil {
		return nil, err
	}
	need := partBytes(&meta, meta.PartTokens[0])
	if err := forward.Check(cfg, o.Window, e.Memory, need, "capture"); err != nil {
		return nil, err
	}
	if err := format.CheckSpace(dir, fileBytes(&meta, first, last)-done(dir)); err != nil {
		return nil, err
	}
	walker, err := forward.New(o.Checkpoint, e.Pool, o.Window, e.Memory, need)
	if err != nil {
		return nil, err
	}
	tokens := 0
	for _, n := range meta.PartTokens[first:last] {
		tokens += n
	}
	p.Start("capture", int64(tokens)*int64(cfg.Layers), "token·layers")
	for i, ws := range parts[first:last] {
		i += first
		unit := []string{filepath.Join(dir, calib.MasksFile(i)), filepath.Join(dir, calib.FeaturesFile(i))}
		if calib.Sealed(unit...) {
			p.Add(int64(calib.Tokens(ws)) * int64(cfg.Layers))
			continue
		}
		pt := newPart(e.Pool, walker, &meta, txt, ws, p)
		if err := pt.write(ctx, dir, i); err != nil {
			return nil, err
		}
		if err := calib.Seal(unit...); err != nil {
			return nil, err
		}
	}
	p.Done()
	// A shard's description is that of the whole; its other parts are not there.
	if err := writeMeta(dir, &meta); err != nil {
		return nil, err
	}
	if !o.Shard.All() {
		return map[string]any{"tokens": tokens, "parts": last - first, "first_part": first}, nil
	}
	return finish(dir, &meta, cfg)
}

// merge brings the shards' parts together.
func merge(cfg *checkpoint.Config, dir string, shards []stage.Part) (map[string]any, error) {
	meta, err := calib.ReadMeta(shards[0].Dir, cfg)
	if err != nil {
		return nil, err
	}
	i := 0
	for _, s := range shards {
		for range s.Int("parts") {
			for _, name := range []string{calib.MasksFile(i), calib.FeaturesFile(i)} {
				if err := calib.Bring(filepath.Join(s.Dir, name), filepath.Join(dir, name)); err != nil {
					return nil, err
				}
			}
			i++
		}
	}
	if err := writeMeta(dir, meta); err != nil {
		return nil, err
	}
	return finish(dir, meta, cfg)
}

// finish counts the masks' bits and reports.
func finish(dir string, meta *calib.Meta, cfg *checkpoint.Config) (map[string]any, error) {
	c, err := calib.OpenCapture(dir, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reached, err := c.Densities()
	if err != nil {
		return nil, err
	}
	values := map[string]any{"tokens": meta.Tokens, "parts": len(meta.PartTokens), "text_sha256": meta.Text, "density": meta.Density}
	for p, name := range predictor.Projections {
		thresholds, sum := make([]float32, meta.Layers), 0.0
		for l := range thresholds {
			thresholds[l] = meta.Thresholds.Value(l, p)
			sum += reached[l][p]
		}
		values["threshold_"+name] = thresholds
		values["density_"+name] = sum / float64(meta.Layers)
	}
	return values, nil
}

func writeMeta(dir string, meta *calib.Meta) error {
	b, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return err
	}
	return format.WriteFileAtomic(filepath.Join(dir, calib.MetaFile), func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", b)
		return err
	})
}

// partBytes is what a part of t tokens holds besides the walker: the residual stream, layer 0's features, one layer's
// masks, the sums, and a window's products.
func partBytes(m *calib.Meta, t int) int64 {
	tokens, h, n := int64(t), int64(m.Hidden), int64(m.Neurons)
	return tokens*(4*h+4*2*h+2*8*int64(predictor.Words(m.Neurons))) + 2*8*int64(m.Layers)*n + 4*int64(m.Window)*n + 8*n
}

// fileBytes is what parts [first, last) take on disk, but for headers.
func fileBytes(m *calib.Meta, first, last int) int64 {
	n := int64(0)
	for _, t := range m.PartTokens[first:last] {
		n += int64(t)*(int64(m.Layers)*2*8*int64(predictor.Words(m.Neurons))+4*2*int64(m.Hidden)) + 2*8*int64(m.Layers)*int64(m.Neurons)
	}
	return n
}

// done is what an interrupted run left.
func done(dir string) int64 {
	n := int64(0)
	names, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	for _, name := range names {
		if st, err := os.Stat(name); err == nil {
			n += st.Size()
		}
	}
	return n
}
