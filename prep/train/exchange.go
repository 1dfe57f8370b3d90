package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Training elsewhere: Export writes what training needs, pipelines/ddp/train.py trains, and the stage takes the weights
// back with Options.Import. Both sides name the version of this exchange.
const (
	ExchangeVersion = 1
	DataFile        = "data.safetensors"
	ConfigFile      = "config.json"
)

// Metadata keys of a file of weights.
const (
	versionKey = "neuroprefetcher.predictor" // ExchangeVersion
	dataKey    = "data"                      // Config.Data
)

// Config is the content of ConfigFile: the network's shape and how it is to be trained.
type Config struct {
	Version int      `json:"version"`
	Data    string   `json:"data"` // hash of what the data set was made from
	Tokens  int      `json:"tokens"`
	Layers  int      `json:"layers"`
	Hidden  int      `json:"hidden"`
	Dim     int      `json:"dim"`
	Gate0   int      `json:"gate0"` // centroids of layer 0's gate
	Heads   []int    `json:"heads"` // centroids of each table, layer by layer
	Names   []string `json:"names"` // of their tensors
	Blocks  int      `json:"blocks"`
	Expand  int      `json:"expand"`
	Eps     float64  `json:"eps"`
	Epochs  int      `json:"epochs"`
	Batch   int      `json:"batch"`
	LR      float64  `json:"lr"`
	Beta1   float64  `json:"beta1"`
	Beta2   float64  `json:"beta2"`
	AdamEps float64  `json:"adam_eps"`
	Decay   float64  `json:"decay"`
	Warmup  float64  `json:"warmup"`
	Lowest  float64  `json:"lowest"`
	Seed    uint64   `json:"seed"`
}

// dataHash tells data sets apart.
func dataHash(inputs []string) string {
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintln(h, in)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Export writes the data set and the configuration to dir, which it makes. DataFile has feat.* F16 (T, H), gate0 I32
// (T), ids I32 (tables, T), and train and held I32: the tokens to train on and those to measure with.
func Export(ctx context.Context, e *stage.Env, o Options, dir string) (map[string]any, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.defaults()
	if err := e.Lock(); err != nil {
		return nil, err
	}
	defer e.Unlock()
	if err := e.Sound(ctx, o.reads()...); err != nil {
		return nil, err
	}
	in, err := o.inputs(e)
	if err != nil {
		return nil, err
	}
	d, err := o.load(e.Work)
	if err != nil {
		return nil, err
	}
	defer d.c.Close()
	s, tokens := d.shape, d.c.Tokens
	cfg := Config{Version: ExchangeVersion, Data: dataHash(in), Tokens: tokens, Layers: o.Config.Layers, Hidden: s.h, Dim: s.t, Gate0: s.k0, Heads: s.heads,
		Blocks: predictor.Blocks, Expand: predictor.Expand, Eps: predictor.Eps, Epochs: o.Epochs, Batch: min(o.Batch, len(d.train)), LR: o.LR,
		Beta1: beta1, Beta2: beta2, AdamEps: adamEps, Decay: decay, Warmup: warmup, Lowest: lowest, Seed: e.Seed}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, format.IOf("%w", err)
	}
	bytes := 8*int64(tokens)*int64(s.h) + 4*int64(tokens)*int64(len(s.heads)+2)
	if err := format.CheckSpace(dir, bytes); err != nil {
		return nil, err
	}
	for c := range s.heads {
		cfg.Names = append(cfg.Names, s.head(c))
	}
	p := stage.NewProgress(e, "export")
	defer p.Done()
	p.Start("export", bytes, "B")
	if err := d.write(ctx, filepath.Join(dir, DataFile), p); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := format.WriteFileAtomic(filepath.Join(dir, ConfigFile), func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", b)
		return err
	}); err != nil {
		return nil, err
	}
	return map[string]any{"out": dir, "tokens": len(d.train), "heldout_tokens": len(d.held), "dim": s.t, "parameters": s.count(), "data_bytes": bytes}, nil
}

// write writes the data set.
func (d *data) write(ctx context.Context, path string, p *stage.Progress) error {
	tokens, h := d.c.Tokens, d.shape.h
	var entries []tensors.Entry
	for j := range predictor.FeatureNames {
		entries = append(entries, tensors.Entry{Name: calib.FeatureName(j), DType: "F16", Shape: []int{tokens, h}, Write: func(w io.Writer) error {
			x, half := make([]float32, h), make([]uint16, h)
			for t := range tokens {
				if err := ctx.Err(); err != nil {
					return err
				}
				d.c.Feature(j, t, x)
				kernels.F32ToF16(half, x)
				if _, err := w.Write(kernels.U16Bytes(half)); err != nil {
					return err
				}
				p.Add(int64(2 * h))
			}
			return nil
		}})
	}
	ids := func(name string, tables ...[]uint16) tensors.Entry {
		shape := []int{len(tables), tokens}
		if len(tables) == 1 && name == "gate0" {
			shape = shape[1:]
		}
		return tensors.Entry{Name: name, DType: "I32", Shape: shape, Write: func(w io.Writer) error {
			wide := make([]int32, tokens)
			for _, t := range tables {
				for i, id := range t {
					wide[i] = int32(id)
				}
				if err := tensors.I32Entry(name, []int{tokens}, wide).Write(w); err != nil {
					return err
				}
				p.Add(int64(4 * tokens))
			}
			return nil
		}}
	}
	entries = append(entries, ids("gate0", d.gate0), ids("ids", d.ids...),
		tensors.I32Entry("train", []int{len(d.train)}, d.train), tensors.I32Entry("held", []int{len(d.held)}, d.held))
	return tensors.Write(path, entries, nil)
}

const exportAgain = "export the data set again, and train on it"

// openWeights opens a file of weights that were trained elsewhere; nothing but its kind is checked.
func openWeights(path string) (*tensors.File, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	if v := f.Metadata()[versionKey]; v != strconv.Itoa(ExchangeVersion) {
		f.Close()
		return nil, format.Hint(format.Inputf("%s: predictor weights of version %q, want %d", path, v, ExchangeVersion), exportAgain)
	}
	return f, nil
}

// read takes weights of d's shape, but for the width, from a file that was trained elsewhere.
func (d *data) read(path, data string) (*weights, error) {
	f, err := openWeights(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Metadata()[dataKey] != data {
		return nil, format.Hint(format.Inputf("%s: trained on data of another capture or clustering", path), exportAgain)
	}
	in, ok := f.Info(predictor.ProjName(0))
	if !ok || len(in.Shape) != 2 || in.Shape[0] < 1 || in.Shape[0] > predictor.MaxDim {
		return nil, format.Inputf("%s: tensor %s is missing or not a matrix of at most %d rows", path, predictor.ProjName(0), predictor.MaxDim)
	}
	d.shape.t = in.Shape[0]
	if st, err := os.Stat(path); err != nil || int64(d.shape.count()) > st.Size()/2 { // before anything of that size is made
		return nil, format.Inputf("%s: too short for a predictor of width %d: it has %d weights", path, d.shape.t, d.shape.count())
	}
	w := d.shape.zero()
	all := d.shape.layout(w)
	for _, t := range all {
		dtype := "F32"
		if t.half() {
			dtype = "F16"
		}
		if in, ok := f.Info(t.name); !ok || in.DType != dtype || !slices.Equal(in.Shape, t.shape) {
			return nil, format.Inputf("%s: tensor %s is missing or not %s %v", path, t.name, dtype, t.shape)
		}
	}
	if n := len(f.Names()); n != len(all) {
		return nil, format.Inputf("%s: %d tensors, the predictor has %d", path, n, len(all))
	}
	for _, t := range all {
		if t.half() {
			v, err := f.F16(t.name)
			if err != nil {
				return nil, err
			}
			kernels.F16ToF32(t.data, v)
		} else {
			v, err := f.F32(t.name)
			if err != nil {
				return nil, err
			}
			copy(t.data, v)
		}
		f.Release(t.name)
		for i, v := range t.data {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return nil, format.Inputf("%s: tensor %s: element %d is %v", path, t.name, i, v)
			}
		}
	}
	return w, nil
}
