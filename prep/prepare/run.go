package prepare

import (
	"context"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/capture"
	"neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/moments"
	"neuroprefetcher/prep/regress"
	"neuroprefetcher/prep/repack"
	"neuroprefetcher/prep/self"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/threshold"
	"neuroprefetcher/prep/train"
	"neuroprefetcher/prep/tune"
	"neuroprefetcher/prep/vocab"
)

// Options of all stages. Zero values are the stages' defaults.
type Options struct {
	Checkpoint *checkpoint.Checkpoint

	Texts   []string    // calibration text
	Shard   stage.Shard // of threshold, capture or moments run alone
	Self    int         // tokens that the model writes itself: self.File is then one of Texts
	Tokens  int
	Window  int
	Density float64

	Centroids int

	Dim    int
	Epochs int
	Batch  int
	LR     float64
	Import string // the predictor's weights, trained elsewhere

	Lag         int // see predictor.Source
	Rank        int // of the lookahead factors
	DenseLayers int // dense prefix that the bundle is made for
	Ramp        int // first layers behind it that are named earlier

	JointCentroids int // of a joint vocabulary
	VocabTokens    int // that vocabularies and score rows are made from

	RecordAlign int

	Selectors []string // nil: assemble.DefaultSelectors

	TuneWindows int // that selectors are measured on; 0: the default, < 0: none

	Out      string
	Dense    bool // no calibration, centroids or predictor
	KMax     int
	Sparsity float64
	Tool     string
}

// A Stage is one step of the preparation.
type Stage struct {
	Name   string
	Sparse bool     // left out for a dense bundle
	For    []string // left out where none of these selectors is wanted; nil: it never is
	Run    func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error)
}

// Stages are all steps in their order.
var Stages = []Stage{
	{"repack", false, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return repack.Run(ctx, e, repack.Options{Checkpoint: o.Checkpoint, RecordAlign: o.RecordAlign})
	}},
	{self.Name, true, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return self.Run(ctx, e, o.self())
	}},
	{"threshold", true, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		t := o.threshold()
		t.Shard = o.Shard
		return threshold.Run(ctx, e, t)
	}},
	{"capture", true, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return capture.Run(ctx, e, capture.Options{Checkpoint: o.Checkpoint, Texts: o.Texts, Tokens: o.Tokens, Window: o.Window, Density: o.Density, Shard: o.Shard})
	}},
	{"cluster", true, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return cluster.Run(ctx, e, o.cluster())
	}},
	{"train", true, []string{bundle.SelectorPaper, bundle.SelectorPaperPlus}, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return train.Run(ctx, e, o.train())
	}},
	{vocab.Name, true, []string{bundle.SelectorPaperPlus, bundle.SelectorCentroid}, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return vocab.Run(ctx, e, o.vocab())
	}},
	{train.JointName, true, []string{bundle.SelectorCentroid}, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		t := o.train()
		t.Joint, t.Import = true, ""
		return train.Run(ctx, e, t)
	}},
	{"moments", true, []string{bundle.SelectorLookahead}, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		if err := o.regress().Check(); err != nil { // the sums are for its sources
			return stage.Report{}, err
		}
		m := o.moments()
		m.Shard = o.Shard
		return moments.Run(ctx, e, m)
	}},
	{"regress", true, []string{bundle.SelectorLookahead}, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return regress.Run(ctx, e, o.regress())
	}},
	{"bundle", false, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return assemble.Run(ctx, e, o.bundle())
	}},
	{tune.Name, true, nil, func(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
		return tune.Run(ctx, e, tune.Options{Assemble: o.bundle(), Texts: o.Texts, Windows: o.TuneWindows, Window: o.Window})
	}},
}

// Find is the stage of that name.
func Find(name string) (Stage, bool) {
	for _, s := range Stages {
		if s.Name == name {
			return s, true
		}
	}
	return Stage{}, false
}

// check refuses before the first stage what a later one would refuse after hours of work.
func check(o Options) error {
	if err := assemble.CheckTokenizer(o.Checkpoint); err != nil {
		return err
	}
	if o.Dense {
		return nil
	}
	if _, err := assemble.ResolveKMax(o.KMax, o.Sparsity, o.Checkpoint.Config.Intermediate); err != nil {
		return err
	}
	if o.Checkpoint.Config.Layers < 2 {
		return format.Hint(format.Inputf("%s: a model of one layer has no sparse layer", o.Checkpoint.Dir), "use --dense")
	}
	if err := o.cluster().Check(); err != nil {
		return err
	}
	if err := o.train().Check(); err != nil {
		return err
	}
	if err := o.moments().Check(); err != nil {
		return err
	}
	if err := o.regress().Check(); err != nil {
		return err
	}
	if err := assemble.CheckSelectors(o.Selectors); err != nil {
		return err
	}
	if o.wants(bundle.SelectorPaperPlus, bundle.SelectorCentroid) {
		if err := o.vocab().Check(); err != nil {
			return err
		}
	}
	if o.Self == 0 {
		return threshold.Check(o.threshold())
	}
	if err := o.self().Check(); err != nil {
		return err
	}
	if len(o.Texts) == 1 && o.Tokens > o.Self {
		return format.Hint(format.Inputf("%d tokens are wanted of %d that the model is to write", o.Tokens, o.Self), "raise the number behind self:, or lower --tokens")
	}
	return nil
}

// places refuses an output that could not be published, and a work folder inside it.
func places(work, out string) error {
	if err := bundle.CheckOut(out); err != nil {
		return err
	}
	w, err := filepath.Abs(work)
	if err != nil {
		return format.IOf("%w", err)
	}
	o, err := filepath.Abs(out)
	if err != nil {
		return format.IOf("%w", err)
	}
	if rel, err := filepath.Rel(o, w); err == nil && filepath.IsLocal(rel) {
		return format.Hint(format.Inputf("%s: the work folder lies in the output %s", work, out), "choose another --work")
	}
	return nil
}

func (o Options) bundle() assemble.Options {
	return assemble.Options{Checkpoint: o.Checkpoint, Out: o.Out, Dense: o.Dense, KMax: o.KMax, Sparsity: o.Sparsity, Tool: o.Tool, Selectors: o.Selectors}
}

func (o Options) self() self.Options {
	return self.Options{Checkpoint: o.Checkpoint, Tokens: o.Self, Window: o.Window}
}

func (o Options) threshold() threshold.Options {
	return threshold.Options{Checkpoint: o.Checkpoint, Texts: o.Texts, Tokens: o.Tokens, Window: o.Window}
}

func (o Options) cluster() cluster.Options {
	return cluster.Options{Config: o.Checkpoint.Config, Centroids: o.Centroids}
}

// wants tells whether one of the selectors is.
func (o Options) wants(selectors ...string) bool {
	names := o.Selectors
	if names == nil {
		names = assemble.DefaultSelectors
	}
	return slices.ContainsFunc(selectors, func(s string) bool { return slices.Contains(names, s) })
}

func (o Options) vocab() vocab.Options {
	dense := o.DenseLayers
	if dense == 0 {
		dense = regress.DefaultDense(o.Checkpoint.Config.Layers)
	}
	return vocab.Options{Checkpoint: o.Checkpoint, Texts: o.Texts, Tokens: o.VocabTokens, Centroids: o.JointCentroids, Dense: dense,
		Paper: o.wants(bundle.SelectorPaperPlus), Joint: o.wants(bundle.SelectorCentroid)}
}

func (o Options) moments() moments.Options {
	lags := moments.DefaultLags
	if o.Lag > 0 {
		lags = append([]int{o.Lag}, lags...)
	}
	extra, _ := o.regress().Extra() // wrong options are refused by regress's Check
	return moments.Options{Checkpoint: o.Checkpoint, Texts: o.Texts, Tokens: o.Tokens, Window: o.Window, Lags: lags, Extra: extra}
}

func (o Options) regress() regress.Options {
	return regress.Options{Checkpoint: o.Checkpoint, Lag: o.Lag, Rank: o.Rank, Dense: o.DenseLayers, Ramp: o.Ramp}
}

func (o Options) train() train.Options {
	return train.Options{Config: o.Checkpoint.Config, Dim: o.Dim, Epochs: o.Epochs, Batch: o.Batch, LR: o.LR, Import: o.Import}
}

// Run runs every stage that a bundle of this kind needs. The work folder is locked from the first to the last.
func Run(ctx context.Context, e *stage.Env, o Options) ([]stage.Report, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	if err := places(e.Work, o.Out); err != nil {
		return nil, err
	}
	if err := e.Lock(); err != nil {
		return nil, err
	}
	defer e.Unlock()
	if err := assemble.CheckTemplate(o.Checkpoint); err != nil {
		e.Warn("%s: %v: nprun chat and nprun serve will refuse the bundle", o.Checkpoint.Dir, err)
	}
	for _, s := range Stages {
		if o.Dense && s.Sparse || s.Name == self.Name && o.Self == 0 || s.For != nil && !o.wants(s.For...) {
			continue
		}
		if _, err := s.Run(ctx, e, o); err != nil {
			return e.Reports(), err
		}
	}
	return e.Reports(), nil
}
