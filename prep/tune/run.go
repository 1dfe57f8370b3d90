package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/tensors"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/ladder"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Name of the stage and of its folder.
const Name = assemble.TuneStage

// ReadShare is the share of K_max that is read at most where reads are limited.
const ReadShare = 0.17

const (
	mostTokens   = 2048          // that are measured,
	largeModel   = 2_000_000_000 // and half as many from this number of parameters on
	meansDraft   = "means.tmp"
	leastScored  = 2
	windowTokens = 512
)

// Options of the stage.
type Options struct {
	Assemble assemble.Options
	Texts    []string
	Windows  int // of text that are measured, and twice as many that the means are taken from; 0: from the model's size; < 0: none
	Window   int // tokens; 0: 512, at most the model's context
}

func (o *Options) defaults() {
	c := o.Assemble.Checkpoint.Config
	if o.Window == 0 {
		o.Window = windowTokens
	}
	if c.MaxPositions > 0 {
		o.Window = min(o.Window, c.MaxPositions)
	}
	if o.Windows == 0 {
		tokens := mostTokens
		if c.Params() > largeModel {
			tokens /= 2
		}
		o.Windows = max(1, tokens/o.Window)
	}
}

// Run publishes the bundle, measures it, and publishes it with what was found.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	o.defaults()
	if err := e.Lock(); err != nil {
		return stage.Report{}, err
	}
	defer e.Unlock()
	r, err := assemble.Run(ctx, e, o.Assemble)
	if err != nil || o.Windows < 0 {
		return r, err
	}
	id, err := assemble.Identity(e, o.Assemble)
	if err != nil {
		return stage.Report{}, err
	}
	hash, err := text.Hash(o.Texts)
	if err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{Name: Name, Version: 1, Inputs: append([]string{id, hash}, o.Assemble.Checkpoint.Files()...), Params: []int{o.Windows, o.Window}}
	tuned, err := stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, id, dir)
	})
	if errors.Is(err, format.ErrFit) { // the bundle is whole without it
		e.Warn("the bundle's selectors were not measured, auto takes the first: %v; npprep tune does it with more --memory", err)
		return r, nil
	}
	if r = tuned; err != nil {
		return r, err
	}
	_, err = assemble.Run(ctx, e, o.Assemble)
	return r, err
}

func run(ctx context.Context, e *stage.Env, o Options, id, dir string) (map[string]any, error) {
	txt, err := text.Load(o.Assemble.Checkpoint, o.Texts)
	if err != nil {
		return nil, err
	}
	measured, averaged, seen := cut(e, txt.Tokens, o.Windows, o.Window)
	found := assemble.Tuned{}
	values := map[string]any{assemble.TuneOf: id, "windows": len(measured), "seen": seen}
	if len(measured) > 0 {
		if err := measure(ctx, e, o, dir, measured, averaged, seen, &found); err != nil {
			return nil, err
		}
	} else {
		e.Note("tune: the text is too short to measure anything on")
	}
	best := &bundle.Sparse{Quality: found.Quality}
	if q := slices.IndexFunc(found.Quality, func(q bundle.Quality) bool { return q.Selector == best.Best(false) }); q >= 0 {
		values["best"], values["ratio"], values["means"] = best.Best(false), found.Quality[q].Ratio, found.Means
	}
	warnStatic(e, found.Quality)
	return values, format.WriteFileAtomic(filepath.Join(dir, assemble.TunedFile), func(w io.Writer) error {
		b, err := json.MarshalIndent(&found, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", b)
		}
		return err
	})
}

// warnStatic names selectors that are no better than the control.
func warnStatic(e *stage.Env, qs []bundle.Quality) {
	at := slices.IndexFunc(qs, func(q bundle.Quality) bool { return q.Selector == bundle.SelectorStatic })
	if at < 0 {
		return
	}
	for _, q := range qs {
		if q.Selector != bundle.SelectorStatic && q.ReadCap == 0 && q.Drift > 0 && q.Drift >= qs[at].Drift {
			e.Warn("selector %s is no better than a fixed set: %.1f %% of tokens as the exact model's and perplexity ×%.3f, static %.1f %% and ×%.3f",
				q.Selector, 100*q.Agreement, q.Ratio, 100*qs[at].Agreement, qs[at].Ratio)
		}
	}
}

// cut chooses windows to measure on, and others to take means from: spread over what no earlier stage read, or over all of the
// text where that is too little; then seen is true.
func cut(e *stage.Env, tokens []int32, n, window int) (measured, averaged [][]int32, seen bool) {
	all := calib.Cut(len(tokens), window)
	if k := len(all) - 1; k > 0 && all[k].Len < window {
		all = all[:k]
	}
	if len(all) == 0 || all[0].Len < leastScored {
		return nil, nil, false
	}
	used := read(e, len(tokens))
	unseen := slices.DeleteFunc(slices.Clone(all), func(w calib.Window) bool { return slices.Contains(used[w.Start:w.Start+w.Len], true) })
	if seen = len(unseen) < 3*n; seen {
		unseen = all
	}
	for i, w := range calib.Spread(unseen, 3*n) {
		ids := tokens[w.Start : w.Start+w.Len]
		if i%3 == 0 {
			measured = append(measured, ids)
		} else {
			averaged = append(averaged, ids)
		}
	}
	if averaged == nil {
		averaged = measured
	}
	return measured, averaged, seen
}

// read marks the tokens that capture and moments read.
func read(e *stage.Env, n int) []bool {
	used := make([]bool, n)
	mark := func(w calib.Window) {
		for i := w.Start; i < min(w.Start+w.Len, n); i++ {
			used[i] = true
		}
	}
	number := func(stage, key string) int {
		v, _ := e.Values(stage)[key].(float64)
		return int(v)
	}
	mark(calib.Window{Len: number("capture", "tokens")})
	if windows, tokens := number("moments", "windows"), number("moments", "tokens"); windows > 0 {
		// every window but the last is whole, and position 0 is not counted
		length := (tokens+windows-1)/windows + 1
		for _, w := range calib.Spread(calib.Cut(n, length), windows) {
			mark(w)
		}
	}
	return used
}

// measure fills found.
func measure(ctx context.Context, e *stage.Env, o Options, dir string, measured, averaged [][]int32, seen bool, found *assemble.Tuned) error {
	b, err := bundle.Open(o.Assemble.Out)
	if err != nil {
		return err
	}
	own := &stage.Env{Work: dir, Threads: e.Threads, Memory: e.Memory, Quiet: e.Quiet, JSON: e.JSON, Log: e.Log, Pool: e.Pool, Seed: e.Seed}
	lo := ladder.Options{Bundles: []string{o.Assemble.Out}, Selectors: b.Manifest.Sparse.Selectors, Given: measured, Budgets: []ladder.Budget{{Share: ReadShare}}, Means: ladder.NoMeans}
	plain, err := ladder.Run(ctx, own, lo)
	if err != nil {
		return err
	}
	mean, helped := filepath.Join(dir, meansDraft), map[string]bool{}
	if s := b.Manifest.Sparse; s.KMax < b.Manifest.Rows.Neurons {
		lo.Selectors = slices.DeleteFunc(slices.Clone(s.Selectors), func(n string) bool { return n == bundle.SelectorPaper }) // worse with them
	} else {
		lo.Selectors = nil
	}
	results := plain.Rungs
	if len(lo.Selectors) > 0 {
		lo.Given = averaged
		if err := ladder.Means(ctx, own, lo, mean); err != nil {
			return err
		}
		lo.Given, lo.Means = measured, mean
		filled, err := ladder.Run(ctx, own, lo)
		if err != nil {
			return err
		}
		for i, r := range results {
			at := slices.IndexFunc(filled.Rungs, func(f ladder.Result) bool { return f.Rung == r.Rung })
			if r.Selector == ladder.DenseName || at < 0 {
				continue
			}
			if r.ReadCap == 0 {
				helped[r.Selector] = filled.Rungs[at].Drift < r.Drift
			}
			if helped[r.Selector] {
				results[i] = filled.Rungs[at]
			}
		}
	}
	for _, r := range results {
		if r.Selector != ladder.DenseName {
			found.Quality = append(found.Quality, bundle.Quality{Selector: r.Selector, ReadCap: r.ReadCap, Tokens: plain.Protocol.Scored, Seen: seen,
				Ratio: r.Ratio, StdErr: r.RatioStdErr, Agreement: r.Agreement, Drift: r.Drift, Recall: r.Recall, Reuse: r.Reuse, BytesPerToken: r.BytesPerToken})
		}
	}
	for _, s := range lo.Selectors {
		if helped[s] {
			found.Means = append(found.Means, s)
		}
	}
	if len(found.Means) > 0 {
		if err := keep(mean, filepath.Join(dir, bundle.MemberMeans), found.Means, b.Manifest.Model.Layers); err != nil {
			return err
		}
	}
	// only what the bundle needs stays
	for _, path := range []string{mean, filepath.Join(dir, "eval")} {
		if err := os.RemoveAll(path); err != nil {
			return format.IOf("%w", err)
		}
	}
	return nil
}

// keep copies the means of some selectors.
func keep(from, to string, selectors []string, layers int) error {
	f, err := tensors.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var entries []tensors.Entry
	for _, s := range selectors {
		for l := 1; l < layers; l++ {
			for _, name := range []string{predictor.MeanName(s, l), predictor.SumName(s, l)} {
				entries = append(entries, f.Entry(name))
			}
		}
	}
	return tensors.Write(to, entries, nil)
}
