package regress

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/lowrank"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

// Name of the stage and of its folder.
const Name = "regress"

// File is the stage's output inside Work/regress: the bundle's lookahead.safetensors.
const File = "lookahead.safetensors"

// DefaultLag is the stream behind the attention of the layer before.
const DefaultLag = 2

// fewTokens is how many tokens per element of the hidden size are too few to fit factors that hold for other text.
const fewTokens = 10

// Options of the regress stage, which needs the moments stage's output in the same work folder.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Lag        int // see predictor.Source; 0 = DefaultLag
	Rank       int // of layers after the dense prefix; 0 = from the model's size
	Dense      int // dense prefix that the bundle is made for; 0 = DefaultDense
	Ramp       int // first layers after it that are named earlier, see predictor.RampSource
}

type params struct {
	Lag   int
	Ranks []int
	// left out without a ramp: the key is then that of before there were any
	Dense, Ramp int `json:",omitempty"`
}

// source is the site that names layer l.
func (o *Options) source(l int) int { return predictor.RampSource(l, o.Lag, o.Dense, o.Ramp) }

// Extra are the sources that the moments need besides those of the lag.
func (o Options) Extra() ([]calib.Pair, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	var extra []calib.Pair
	for l := o.Dense; l < min(o.Dense+o.Ramp, o.Checkpoint.Config.Layers); l++ {
		extra = append(extra, calib.Pair{Layer: l, Site: o.source(l)})
	}
	return extra, nil
}

// Check refuses options before anything is run.
func (o Options) Check() error { return o.defaults() }

func (o *Options) defaults() error {
	cfg := o.Checkpoint.Config
	if o.Lag == 0 {
		o.Lag = DefaultLag
	}
	if o.Dense == 0 {
		o.Dense = DefaultDense(cfg.Layers)
	}
	switch {
	case cfg.Layers < 2:
		return format.Inputf("a model of one layer has nothing to predict: prepare it with --dense")
	case o.Lag < 1 || o.Lag > predictor.MaxLag:
		return format.Inputf("lag %d: must be 1 to %d", o.Lag, predictor.MaxLag)
	case o.Rank < 0 || o.Rank > cfg.Hidden:
		return format.Inputf("rank %d: must be 1 to %d, the hidden size", o.Rank, cfg.Hidden)
	case o.Dense < 1 || o.Dense > cfg.Layers:
		return format.Inputf("dense prefix of %d layers: the model has %d", o.Dense, cfg.Layers)
	case o.Ramp < 0 || o.Lag+2*o.Ramp > predictor.MaxLag:
		return format.Inputf("ramp of %d layers: must be 0 to %d", o.Ramp, (predictor.MaxLag-o.Lag)/2)
	case o.Ramp > cfg.Layers-o.Dense:
		return format.Hint(format.Inputf("ramp of %d layers: only %d are behind the dense prefix of %d", o.Ramp, cfg.Layers-o.Dense, o.Dense), "lower --ramp or --dense-layers")
	}
	return nil
}

// Run solves every layer's factors.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	cfg := o.Checkpoint.Config
	if err := o.defaults(); err != nil {
		return stage.Report{}, err
	}
	outputs, err := e.Outputs("moments")
	if err != nil {
		return stage.Report{}, err
	}
	rank := ranks(cfg, o.Dense, o.Rank)
	p := params{Lag: o.Lag, Ranks: rank}
	if o.Ramp > 0 {
		p.Dense, p.Ramp = o.Dense, o.Ramp
	}
	spec := stage.Spec{
		Name: Name, Version: 1,
		Inputs: append([]string{calib.Digest(outputs)}, o.Checkpoint.Files()...),
		Params: p,
		Reads:  []string{"moments"},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, rank, dir, p)
	})
}

// left is the share of weighted variance that a layer's factors leave, of gate and of up.
type left [2]float64

func run(ctx context.Context, e *stage.Env, o Options, rank []int, dir string, p *stage.Progress) (map[string]any, error) {
	cfg := o.Checkpoint.Config
	m, err := calib.OpenMoments(filepath.Join(e.Work, "moments"), cfg)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for l := 1; l < cfg.Layers; l++ {
		switch {
		case slices.Contains(m.Pairs(l), o.source(l)):
		case slices.Contains(m.Lags, o.Lag):
			return nil, format.Hint(format.Inputf("the moments have no source at site %d for layer %d, which the ramp of %d layers behind %d dense ones needs", o.source(l), l, o.Ramp, o.Dense),
				"run npprep moments again with that --ramp and --dense-layers")
		default:
			return nil, format.Hint(format.Inputf("the moments have lookaheads of %v layers, not %v", layersAhead(m.Lags...), layersAhead(o.Lag)[0]),
				"run npprep moments again with that --lookahead")
		}
	}
	if need := fewTokens * cfg.Hidden; m.Tokens < need {
		e.Warn("the moments are sums over %d tokens; factors that hold for other text need about %d", m.Tokens, need)
	}
	if need := bytes(cfg); e.Memory > 0 && need > e.Memory {
		return nil, format.Hint(format.Fitf("regress needs %s for one layer's matrices; --memory is %s", format.IEC(need), format.IEC(e.Memory)), "raise --memory")
	}
	if err := format.CheckSpace(dir, 2*fileBytes(cfg, rank)); err != nil {
		return nil, err
	}
	p.Start(Name, int64(cfg.Layers-1), "layers")
	rest := make([]left, 0, cfg.Layers-1)
	for l := 1; l < cfg.Layers; l++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		path := unit(dir, l)
		if !calib.Sealed(path) {
			if err := layer(e.Pool, o, m, l, rank[l-1], path); err != nil {
				return nil, fmt.Errorf("layer %d: %w", l, err)
			}
			if err := calib.Seal(path); err != nil {
				return nil, err
			}
		}
		x, err := readLeft(path)
		if err != nil {
			return nil, err
		}
		rest = append(rest, x)
		p.Add(1)
	}
	p.Done()
	if err := join(dir, cfg, o.source); err != nil {
		return nil, err
	}
	return values(cfg, o, rank, rest, m.Tokens), nil
}

// layersAhead are lags as people give them.
func layersAhead(lags ...int) (k []float64) {
	for _, l := range lags {
		k = append(k, float64(l-1)/2)
	}
	return k
}

// bytes is about what a layer's matrices take: H×H in float64 a dozen times, M×H in float32 and as records.
func bytes(c *checkpoint.Config) int64 {
	h, m := int64(c.Hidden), int64(c.Intermediate)
	return 12*8*h*h + 4*h*m*4 + 6*h*m
}

func unit(dir string, l int) string {
	return filepath.Join(dir, fmt.Sprintf(".layer-%05d.safetensors", l))
}

// leftName is a tensor of the unit files only: F32 (2), the shares of weighted variance that are left.
const leftName = "left"

// layer solves one layer and writes its unit.
func layer(pool *kernels.Pool, o Options, m *calib.Moments, l, rank int, path string) error {
	cfg := o.Checkpoint.Config
	src, dst := o.source(l), predictor.MLPSite(l)
	var a [5][]float64
	var err error
	for i, read := range []func() ([]float64, error){
		func() ([]float64, error) { return m.Gram(src) }, func() ([]float64, error) { return m.Mean(src) },
		func() ([]float64, error) { return m.Gram(dst) }, func() ([]float64, error) { return m.Mean(dst) },
		func() ([]float64, error) { return m.Cross(src, dst) },
	} {
		if a[i], err = read(); err != nil {
			return err
		}
	}
	p, err := newProblem(pool, cfg.Hidden, a[0], a[1], a[2], a[3], a[4])
	if err != nil {
		return err
	}
	w, down, err := weights(pool, o.Checkpoint, l)
	if err != nil {
		return err
	}
	y := [2]*output{p.output(w[0]), p.output(w[1])}
	weight := importance(y, down)
	scale := make([]float32, cfg.Hidden)
	for i, v := range p.invDev {
		scale[i] = float32(v)
	}
	entries := []tensors.Entry{tensors.F32Entry(predictor.ScaleName(l), []int{cfg.Hidden}, scale)}
	rest := make([]float32, 2)
	for proj := range predictor.Projections {
		f, err := p.solve(y[proj], weight[proj], rank, quantise)
		if err != nil {
			return err
		}
		entries = append(entries, f.in.(*lowrank.Matrix).Entries(predictor.InName(proj, l))...)
		entries = append(entries, f.out.(*lowrank.Matrix).Entries(predictor.OutName(proj, l))...)
		dev, miss, all := make([]float64, len(f.residual)), 0.0, 0.0
		for i, v := range f.residual {
			d := weight[proj][i] * weight[proj][i]
			dev[i], miss, all = math.Sqrt(v), miss+d*v, all+d*y[proj].variance[i]
		}
		entries = append(entries, lowrank.Halves(predictor.OffsetName(proj, l), f.offset), lowrank.Halves(predictor.DevName(proj, l), dev))
		if all > 0 {
			rest[proj] = float32(miss / all)
		}
	}
	entries = append(entries, lowrank.Halves(predictor.DownName(l), down), tensors.F32Entry(leftName, []int{2}, rest))
	return tensors.Write(path, entries, nil)
}

// weights reads gate and up (M, H) with the norm's weight in their columns, and ‖down‖₂ (M).
func weights(pool *kernels.Pool, ck *checkpoint.Checkpoint, l int) (w [2][]float32, down []float64, err error) {
	src := &model.CheckpointSource{C: ck}
	layer, err := model.LoadLayer(ck.Config, src, l, nil)
	if err != nil {
		return w, nil, err
	}
	rows, err := model.LoadRows(ck.Config, src, l, nil)
	if err != nil {
		return w, nil, err
	}
	h := ck.Config.Hidden
	for p := range w {
		w[p] = make([]float32, rows.N*h)
	}
	down = make([]float64, rows.N)
	pool.Run(rows.N, 64, func(lo, hi int) {
		col := make([]float32, h)
		for n := lo; n < hi; n++ {
			rec := rows.Mem[n*rows.Stride:]
			for p := range w {
				row := w[p][n*h : (n+1)*h]
				kernels.F16ToF32(row, rec[p*h:(p+1)*h])
				for i, v := range layer.MLPNorm {
					row[i] *= v
				}
			}
			kernels.F16ToF32(col, rec[2*h:3*h])
			for _, v := range col {
				down[n] += float64(v) * float64(v)
			}
			down[n] = math.Sqrt(down[n])
		}
	})
	return w, down, nil
}

// importance weighs an error of gate by ‖down‖ × the root mean square of up, and of up by ‖down‖ × that of silu(gate).
func importance(y [2]*output, down []float64) (w [2][]float64) {
	for p := range w {
		w[p] = make([]float64, len(down))
	}
	for i, d := range down {
		w[0][i] = d * math.Sqrt(y[1].mean[i]*y[1].mean[i]+y[1].variance[i])
		w[1][i] = d * siluRMS(y[0].mean[i], y[0].variance[i])
	}
	return w
}

func readLeft(path string) (x left, err error) {
	f, err := tensors.Open(path)
	if err != nil {
		return x, err
	}
	defer f.Close()
	v, err := f.F32(leftName)
	if err != nil {
		return x, err
	}
	return left{float64(v[0]), float64(v[1])}, nil
}

// join copies the units into one file.
func join(dir string, cfg *checkpoint.Config, from func(l int) int) error {
	source := make([]int32, cfg.Layers)
	source[0] = -1
	for l := 1; l < cfg.Layers; l++ {
		source[l] = int32(from(l))
	}
	entries := []tensors.Entry{tensors.I32Entry(predictor.SourceName, []int{cfg.Layers}, source)}
	for l := 1; l < cfg.Layers; l++ {
		f, err := tensors.Open(unit(dir, l))
		if err != nil {
			return err
		}
		defer f.Close()
		for _, name := range f.Names() {
			if name == leftName {
				continue
			}
			entries = append(entries, f.Entry(name))
		}
	}
	return tensors.Write(filepath.Join(dir, File), entries, nil)
}

// values is the stage's report.
func values(cfg *checkpoint.Config, o Options, rank []int, rest []left, tokens int) map[string]any {
	n := fileBytes(cfg, rank)
	gate, up := make([]float64, len(rest)), make([]float64, len(rest))
	for i, x := range rest {
		gate[i], up[i] = x[0], x[1]
	}
	return map[string]any{
		"tokens": tokens, "lookahead": layersAhead(o.Lag)[0], "rank": rank[len(rank)-1], "dense": o.Dense, "ramp": o.Ramp, "bytes": n,
		"share": fmt.Sprintf("%.2f %%", 100*float64(n)/float64(modelBytes(cfg))), "left_gate": gate, "left_up": up,
	}
}
