package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/synthetic"
)

// traceTokens bounds a trace; longer runs go through it to and fro.
const traceTokens = 128

// syntheticFlags let a command measure random weights instead of a bundle.
func syntheticFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "synthetic", Usage: "measure random weights in the `SHAPE` of " + strings.Join(synthetic.Names(), ", ") + " instead of a bundle; in sparse mode (the default then) a trace of active sets is replayed"},
		&cli.StringFlag{Name: "dir", Usage: "folder `DIR` for synthetic bundles and traces, kept for the next time; default: in the user's cache"},
		&cli.Float64Flag{Name: "reuse", Value: synthetic.DefaultReuse, Usage: "of the trace: `SHARE` of a layer's neurons that the token before had too"},
		&cli.Float64Flag{Name: "run-length", Value: synthetic.DefaultRun, Usage: "of the trace: mean `LENGTH` of the runs of adjacent neurons among those that come in"},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`SEED` of the synthetic weights and the trace"},
		&cli.IntFlag{Name: "lag", Usage: "queue a layer's reads `N` half layers before its MLP, as the lookahead selector does; 0 queues all after layer 0"},
		&cli.IntFlag{Name: "ramp", Usage: "with --lag: name the first `N` sparse layers earlier, the first one by N layers"},
	}
}

// syntheticRun says what was measured when it was no real model.
type syntheticRun struct {
	Shape     string                 `json:"shape"`
	Seed      uint64                 `json:"seed"`
	Written   bool                   `json:"written"` // by this run; else it was there
	WriteTime float64                `json:"write_s"`
	Trace     *synthetic.TraceParams `json:"trace"` // null unless one was replayed
	MeanRun   float64                `json:"trace_mean_run,omitempty"`
	TraceFile string                 `json:"trace_file,omitempty"`
	Lag       int                    `json:"lag,omitempty"` // half layers; 0: every layer's reads are queued after layer 0
	Ramp      int                    `json:"ramp,omitempty"`
}

// workload is what a measurement runs: a bundle, or a synthetic one behind a trace.
type workload struct {
	dir   string
	run   *syntheticRun // nil for a real bundle
	shape synthetic.Shape
	base  string // folder of synthetic bundles
	o     engine.Options
}

// newWorkload reads the flags and writes the synthetic bundle if there is none yet. steps is how many tokens will be run.
func newWorkload(c *cli.Context, steps int) (w *workload, err error) {
	name := c.String("synthetic")
	if name == "" {
		for _, f := range []string{"dir", "reuse", "run-length", "seed", "lag", "ramp"} {
			if c.IsSet(f) {
				return nil, clix.Usagef("--%s needs --synthetic", f)
			}
		}
		w = &workload{dir: c.String("bundle")}
		w.o, err = engineOptions(c)
		return w, err
	}
	if c.String("bundle") != "" {
		return nil, clix.Usagef("--bundle and --synthetic exclude each other")
	}
	if c.Float64("margin") != 0 || c.Int("rows-per-token") != 0 || c.String("read-budget") != "" {
		return nil, clix.Usagef("--margin, --rows-per-token and --read-budget would change the sets of the trace that --synthetic replays; use --reuse")
	}
	w = &workload{}
	if w.shape, err = synthetic.ShapeOf(name); err != nil {
		return nil, clix.Usagef("--synthetic: %v", err)
	}
	if w.base, err = syntheticDir(c); err != nil {
		return nil, err
	}
	// From here on the synthetic bundle is the bundle.
	w.dir = filepath.Join(w.base, w.shape.Name)
	if err := c.Set("bundle", w.dir); err != nil {
		return nil, err
	}
	if w.o, err = engineOptions(c); err != nil {
		return nil, err
	}
	if !c.IsSet("mode") {
		w.o.Mode = engine.ModeSparse
	}
	if w.o.Mode == engine.ModeResident || w.o.Mode == engine.ModeStream {
		for _, f := range []string{"reuse", "run-length", "lag", "ramp"} {
			if c.IsSet(f) {
				return nil, clix.Usagef("--%s is of the trace that sparse mode replays, not of --mode %s", f, w.o.Mode)
			}
		}
	}
	p := synthetic.TraceParams{Layers: w.shape.Layers, Neurons: w.shape.Intermediate, KMax: w.shape.KMax, Tokens: min(max(steps, 1), traceTokens),
		Reuse: c.Float64("reuse"), Run: c.Float64("run-length"), Seed: c.Uint64("seed")}
	if w.o.KMax > 0 {
		p.KMax = w.o.KMax
	}
	if lag, ramp := c.Int("lag"), c.Int("ramp"); lag < 0 || lag > predictor.MaxLag || ramp < 0 || ramp > predictor.MaxLag || ramp > 0 && lag == 0 {
		return nil, clix.Usagef("--lag %d --ramp %d: want 0 to %d, and no ramp without a lag", lag, ramp, predictor.MaxLag)
	}
	if err := p.Check(); err != nil {
		return nil, clix.Usagef("%v", err)
	}
	if err := w.write(c); err != nil {
		return nil, err
	}
	return w, w.trace(p, c.Int("lag"), c.Int("ramp"))
}

// write makes the synthetic bundle.
func (w *workload) write(c *cli.Context) error {
	size, err := synthetic.Size(w.shape)
	if err != nil {
		return err
	}
	report, end := clix.ByteProgress(notes(c), fmt.Sprintf("writing %s of random weights to %s", clix.FormatSize(size), w.dir))
	defer end()
	start := time.Now()
	w.run = &syntheticRun{Shape: w.shape.Name, Seed: c.Uint64("seed")}
	_, w.run.Written, err = synthetic.Ensure(c.Context, w.base, w.shape, w.run.Seed, "nprun "+clix.Revision(), report)
	if w.run.Written {
		w.run.WriteTime = time.Since(start).Seconds()
	}
	if strings.Contains(format.HintOf(err), "--out") { // what npprep calls it
		err = format.Hint(err, "name a folder that may be written with --dir")
	}
	return err
}

// trace puts a trace before the bundle's selector, where the mode has one. It is in memory before the engine is opened,
// so that the plan counts it.
func (w *workload) trace(p synthetic.TraceParams, lag, ramp int) error {
	if w.o.Mode == engine.ModeResident || w.o.Mode == engine.ModeStream {
		return nil // newWorkload has refused the trace's flags
	}
	t, err := synthetic.EnsureTrace(w.base, w.shape.Name, p)
	if err != nil {
		return err
	}
	w.o.Wrap = func(inner predictor.Selector, pl *engine.Plan) (predictor.Selector, error) {
		w.run.Trace, w.run.MeanRun, w.run.TraceFile = &t.Params, t.MeanRun(), filepath.Join(w.base, synthetic.TraceName(w.shape.Name, p))
		r, err := synthetic.NewReplay(t, inner, pl.Dense, w.shape.Layers, w.shape.Intermediate, pl.KMax)
		if err != nil || lag == 0 {
			return r, err
		}
		w.run.Lag, w.run.Ramp = lag, ramp
		return synthetic.NewAhead(r, w.shape.Layers, lag, ramp), nil
	}
	return nil
}

// syntheticDir is --dir or its default.
func syntheticDir(c *cli.Context) (string, error) {
	if d := c.String("dir"); d != "" {
		return d, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "synthetic"), nil
}

// cacheDir is where measurements of this machine are kept.
func cacheDir() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", format.Hint(format.IOf("no folder for caches: %w", err), "set HOME or XDG_CACHE_HOME")
	}
	return filepath.Join(d, "neuroprefetcher"), nil
}

// describe is the row of the text report.
func (r *syntheticRun) describe() string {
	s := fmt.Sprintf("SYNTHETIC: random weights in the shape of %s, seed %d", r.Shape, r.Seed)
	if t := r.Trace; t != nil {
		s += fmt.Sprintf("; active sets from a trace: reuse %g, mean run %.2f", t.Reuse, r.MeanRun)
		if r.Lag > 0 {
			s += fmt.Sprintf("; named %d half layers ahead, ramp %d", r.Lag, r.Ramp)
		}
	}
	return s
}
