package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// File is the stage's output inside Work/train: the bundle's predictor.safetensors.
const File = "predictor.safetensors"

// The same for the network of the joint vocabularies, a stage of its own.
const (
	JointName = "train-joint"
	JointFile = "joint.safetensors"
)

// Options of the train stage, which needs the capture and cluster stages' outputs in the same work folder.
type Options struct {
	Config *checkpoint.Config
	Dim    int     // T; 0 = DefaultDim
	Epochs int     // 0 = 4
	Batch  int     // tokens; 0 = 256
	LR     float64 // highest learning rate; 0 = 2e-3

	Joint  bool   // the network of the vocab stage's joint vocabularies instead of the paper's
	Import string // file of weights that were trained elsewhere: nothing is trained here
}

// reads are the stages that this one reads.
func (o Options) reads() []string {
	if o.Joint {
		return []string{"capture", "cluster", calib.VocabName}
	}
	return []string{"capture", "cluster"}
}

// inputs are the digests of their outputs.
func (o Options) inputs(e *stage.Env) (in []string, err error) {
	for _, name := range o.reads() {
		outputs, err := e.Outputs(name)
		if err != nil {
			return nil, err
		}
		in = append(in, calib.Digest(outputs))
	}
	return in, nil
}

// name of the stage and file that it makes.
func (o Options) name() (stage, file string) {
	if o.Joint {
		return JointName, JointFile
	}
	return "train", File
}

type params struct {
	Layers, Hidden, Dim, Epochs, Batch int
	LR                                 float64
	Seed                               uint64
	ModelParams                        int64 // DefaultDim follows from it
}

// quality is what the held-out windows say.
type quality struct {
	Loss       float64
	Top1, Top5 float64
	Layers1    []float64 // top-1 per layer ≥ 1, gate and up together
	Layers5    []float64
}

// Run trains the predictor. Each epoch is saved; an interrupted run goes on from the last one.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := o.Check(); err != nil {
		return stage.Report{}, err
	}
	o.defaults()
	in, err := o.inputs(e)
	if err != nil {
		return stage.Report{}, err
	}
	name, _ := o.name()
	spec := stage.Spec{
		Name: name, Version: 1, Inputs: in, Reads: o.reads(),
		Params: params{o.Config.Layers, o.Config.Hidden, o.Dim, o.Epochs, o.Batch, o.LR, e.Seed, ModelParams(o.Config)},
	}
	if o.Import != "" {
		spec.Inputs, spec.Params = append(slices.Clone(in), o.Import), imported{ExchangeVersion}
		return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
			return bring(ctx, e, o, dataHash(in), dir)
		})
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, dir, p)
	})
}

// imported are the parameters of a run that trains nothing.
type imported struct{ Import int }

// bring takes weights that were trained elsewhere, and measures them as those trained here are.
func bring(ctx context.Context, e *stage.Env, o Options, hash, dir string) (map[string]any, error) {
	o.Dim = 0 // the file's
	d, err := o.load(e.Work)
	if err != nil {
		return nil, err
	}
	defer d.c.Close()
	at := &progress{}
	if at.w, err = d.read(o.Import, hash); err != nil {
		return nil, err
	}
	batch := min(o.Batch, max(len(d.held), 1))
	if err := fits(e.Memory, d.shape, batch, d.c.Tokens); err != nil {
		return nil, err
	}
	if len(d.held) > 0 {
		q, err := d.measure(ctx, newBatch(d.shape, e.Pool, batch), at.w)
		if err != nil {
			return nil, err
		}
		if math.IsNaN(q.Loss) || math.IsInf(q.Loss, 0) {
			return nil, format.Inputf("%s: the held-out loss is %v", o.Import, q.Loss)
		}
		at.History = append(at.History, q)
	}
	_, file := o.name()
	if err := write(filepath.Join(dir, file), d.shape, at.w); err != nil {
		return nil, err
	}
	v := values(o, d, at)
	delete(v, "epochs")
	delete(v, "train_loss")
	v["imported"] = o.Import
	return v, nil
}

// Check refuses what no capture could make right.
func (o Options) Check() error {
	o.defaults()
	if o.Config.Layers < 2 {
		return format.Inputf("a model of one layer has nothing to predict: prepare it with --dense")
	}
	if o.Dim < 0 || o.Dim > predictor.MaxDim || o.Epochs < 1 || o.Batch < 1 || !(o.LR > 0 && o.LR < 1) {
		return format.Inputf("width %d (at most %d), %d epochs, batch %d, rate %v: out of range", o.Dim, predictor.MaxDim, o.Epochs, o.Batch, o.LR)
	}
	if o.Import != "" { // before the stages that the rest of its checks need
		f, err := openWeights(o.Import)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func (o *Options) defaults() {
	if o.Epochs == 0 {
		o.Epochs = 4
	}
	if o.Batch == 0 {
		o.Batch = 256
	}
	if o.LR == 0 {
		o.LR = 2e-3
	}
}

func run(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) (map[string]any, error) {
	d, err := o.load(e.Work)
	if err != nil {
		return nil, err
	}
	defer d.c.Close()
	if len(d.train) == 0 {
		return nil, format.Hint(format.Inputf("no token to train on: position 0 of a window has no id"), "name more --text files")
	}
	s := d.shape
	name, file := o.name()
	o.Batch = min(o.Batch, len(d.train))
	if err := fits(e.Memory, s, o.Batch, d.c.Tokens); err != nil {
		return nil, err
	}
	at, err := resume(dir, s)
	if err != nil {
		return nil, err
	}
	if at == nil {
		at = &progress{w: s.start(e.Seed, d.prior()), m: s.zero(), v: s.zero()}
	}
	b, g := newBatch(s, e.Pool, o.Batch), s.zero()
	steps := (len(d.train) + o.Batch - 1) / o.Batch
	p.Start(name, int64(o.Epochs)*int64(len(d.train)), "tokens")
	p.Add(int64(at.Epoch) * int64(len(d.train)))
	for at.Epoch < o.Epochs {
		order := shuffled(d.train, e.Seed, at.Epoch)
		sum := 0.0
		for lo := 0; lo < len(order); lo += o.Batch {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			tokens := order[lo:min(lo+o.Batch, len(order))]
			d.fill(b, tokens)
			b.forward(at.w)
			loss := b.meanLoss()
			if math.IsNaN(loss) || math.IsInf(loss, 0) {
				return nil, format.Inputf("training diverged: loss %v at step %d: lower --lr", loss, at.Step)
			}
			sum += loss * float64(len(tokens))
			b.backward(at.w, g)
			adamW(e.Pool, at.w, g, at.m, at.v, at.Step, o.LR*rate(at.Step, steps*o.Epochs))
			at.Step++
			p.Add(int64(len(tokens)))
		}
		at.Epoch++
		at.Losses = append(at.Losses, sum/float64(len(order)))
		if len(d.held) > 0 {
			q, err := d.measure(ctx, b, at.w)
			if err != nil {
				return nil, err
			}
			at.History = append(at.History, q)
		}
		if err := at.save(dir); err != nil {
			return nil, err
		}
	}
	p.Done()
	if err := write(filepath.Join(dir, file), s, at.w); err != nil {
		return nil, err
	}
	return values(o, d, at), nil
}

// fits holds what training needs against the budget.
func fits(memory int64, s shape, batch, tokens int) error {
	weights := 4 * 4 * int64(s.count()) // weights, gradient, two moments
	work := batchBytes(s, batch)
	ids := 2 * int64(tokens) * int64(len(s.heads)+1)
	if need := weights + work + ids; memory > 0 && need > memory {
		return format.Hint(format.Fitf("train needs %s: network and optimizer %s, batch of %d tokens %s, ids of %d tokens %s; --memory is %s",
			format.IEC(need), format.IEC(weights), batch, format.IEC(work), tokens, format.IEC(ids), format.IEC(memory)),
			"raise --memory or lower the batch")
	}
	return nil
}

// shuffled is the order of an epoch.
func shuffled(tokens []int32, seed uint64, epoch int) []int32 {
	out := append([]int32(nil), tokens...)
	rand.New(rand.NewPCG(seed, uint64(epoch)+1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// measure runs the held-out windows.
func (d *data) measure(ctx context.Context, b *batch, w *weights) (quality, error) {
	tables, per := len(d.ids), len(d.shape.names())
	layers := tables / per
	b.ranked = true
	defer func() { b.ranked = false }()
	q := quality{Layers1: make([]float64, layers), Layers5: make([]float64, layers)}
	for lo := 0; lo < len(d.held); lo += b.max {
		if err := ctx.Err(); err != nil {
			return q, err
		}
		tokens := d.held[lo:min(lo+b.max, len(d.held))]
		d.fill(b, tokens)
		b.forward(w)
		q.Loss += b.meanLoss() * float64(len(tokens))
		for i, r := range b.rank[:len(tokens)*tables] {
			l := i % tables / per
			if r < 1 {
				q.Layers1[l]++
			}
			if r < 5 {
				q.Layers5[l]++
			}
		}
	}
	n := float64(len(d.held))
	q.Loss /= n
	for l := range layers {
		q.Layers1[l] /= float64(per) * n
		q.Layers5[l] /= float64(per) * n
		q.Top1 += q.Layers1[l] / float64(layers)
		q.Top5 += q.Layers5[l] / float64(layers)
	}
	return q, nil
}

// values is the stage's report.
func values(o Options, d *data, at *progress) map[string]any {
	v := map[string]any{
		"dim": d.shape.t, "parameters": d.shape.count(), "tokens": len(d.train), "heldout_tokens": len(d.held),
		"share":  fmt.Sprintf("%.2f %%", 100*float64(d.shape.count())/float64(ModelParams(o.Config))),
		"epochs": at.Epoch, "train_loss": at.Losses,
	}
	if n := len(at.History); n > 0 {
		q := at.History[n-1]
		v["heldout_loss"], v["top1"], v["top5"] = q.Loss, q.Top1, q.Top5
		v["top1_per_layer"], v["top5_per_layer"] = q.Layers1, q.Layers5
	}
	return v
}
