package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
	"neuroprefetcher/runtime/sample"
	"neuroprefetcher/runtime/storage"
)

// bundleFlag names the bundle of every command that has one.
func bundleFlag() cli.Flag {
	return &cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "bundle `DIR` made by npprep"}
}

// bundleDir is the value of bundleFlag.
func bundleDir(c *cli.Context) (string, error) {
	if err := clix.NoArgs(c); err != nil {
		return "", err
	}
	if c.String("bundle") == "" {
		return "", format.Hint(clix.Usagef("no bundle given (--bundle DIR)"), "npprep prepare makes one; make demo makes build/tiny/bundle")
	}
	return c.String("bundle"), nil
}

// maxThreads is far beyond what any loop here can use.
const maxThreads = 1024

// engineFlags are shared by every command that runs a bundle.
func engineFlags() []cli.Flag {
	return []cli.Flag{
		bundleFlag(),
		&cli.StringFlag{Name: "mode", Value: engine.ModeAuto, Usage: "`MODE`: resident, stream, sparse, or auto: resident if it fits, else sparse, or stream for a dense bundle"},
		&cli.StringFlag{Name: "memory", Usage: "budget of the whole process, a `SIZE` such as 8GiB", DefaultText: "what container and machine leave"},
		&cli.StringFlag{Name: "dense-layers", Value: "auto", Usage: "`N` first layers whose MLP stays in memory, or auto"},
		&cli.IntFlag{Name: "k-max", Usage: "compute `N` neurons per sparse layer", DefaultText: "the bundle's K_max"},
		&cli.StringFlag{Name: "selector", Value: "auto", Usage: "`NAME` of the selector of the bundle that names the neurons: lookahead, paper, paper+, centroid or static; auto takes the best that was measured for the bundle"},
		&cli.Float64Flag{Name: "margin", Usage: "`SCORE` by which a neuron must be better to replace a resident one"},
		&cli.IntFlag{Name: "rows-per-token", Usage: "read at most `N` rows per layer and token; 0 is no limit"},
		&cli.StringFlag{Name: "read-budget", Usage: "read at most `SIZE` of rows per token, such as 64MiB: a steadier latency for some quality", DefaultText: "no limit"},
		&cli.IntFlag{Name: "context", Usage: "longest sequence, `N` tokens", DefaultText: "2048, less if memory is short"},
		&cli.IntFlag{Name: "threads", Usage: "compute on `N` threads", DefaultText: "all"},
		&cli.StringFlag{Name: "io", Value: "auto", Usage: "`WAY` that rows are read: auto, uring or pread"},
		&cli.StringFlag{Name: "direct", Value: "auto", Usage: "`WHEN` to use O_DIRECT: auto, require or off"},
		&cli.IntFlag{Name: "queue-depth", Usage: "at most `N` reads in flight", DefaultText: "what bench --drive found best for the drive, else 256"},
		&cli.StringFlag{Name: "gap", Value: "0", Usage: "read through gaps of at most `BYTES` between rows; auto takes what a short look at the drive suggests", DefaultText: "what calibrate found, else 0"},
		clix.JSONFlag(),
		clix.QuietFlag(),
	}
}

// withOwn puts a command's own flags behind the bundle's and before those of the engine, so that its help begins with them.
func withOwn(engine []cli.Flag, own ...cli.Flag) []cli.Flag {
	return slices.Concat(engine[:1], own, engine[1:])
}

// without leaves a flag out.
func without(flags []cli.Flag, name string) []cli.Flag {
	return slices.DeleteFunc(flags, func(f cli.Flag) bool { return f.Names()[0] == name })
}

func sampleFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{Name: "temp", Usage: "temperature `T`; 0 always takes the likeliest token"},
		&cli.IntFlag{Name: "top-k", Usage: "sample from the `K` likeliest tokens; 0 is all"},
		&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "sample from the likeliest tokens that hold probability `P` together"},
		&cli.Float64Flag{Name: "min-p", Usage: "leave out tokens below share `P` of the likeliest one's probability"},
		&cli.Float64Flag{Name: "repetition-penalty", Value: 1, Usage: "`FACTOR`; above 1, it makes tokens that occurred less likely"},
		&cli.Uint64Flag{Name: "seed", Usage: "`SEED` of the sampler"},
	}
}

func sampleParams(c *cli.Context) (sample.Params, error) {
	p := sample.Params{Temp: c.Float64("temp"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
		RepetitionPenalty: c.Float64("repetition-penalty"), Seed: c.Uint64("seed")}
	if err := p.Validate(); err != nil {
		return p, clix.Usagef("%v", err)
	}
	return p, nil
}

// maxTokens is the value of --max-tokens.
func maxTokens(c *cli.Context) (int, error) {
	n := c.Int("max-tokens")
	if n < 0 {
		return 0, clix.Usagef("--max-tokens %d: want a number from 0", n)
	}
	return n, nil
}

// engineOptions reads engineFlags.
func engineOptions(c *cli.Context) (engine.Options, error) {
	o := engine.Options{Mode: c.String("mode"), KMax: c.Int("k-max"), Context: c.Int("context"), Threads: c.Int("threads"),
		Selector: c.String("selector"), Margin: float32(c.Float64("margin")), ReadCap: c.Int("rows-per-token"),
		Storage: storage.Options{Backend: c.String("io"), Direct: c.String("direct"), QueueDepth: c.Int("queue-depth")}}
	if _, err := bundleDir(c); err != nil {
		return o, err
	}
	for _, f := range []string{"k-max", "context", "threads", "queue-depth", "rows-per-token"} {
		if c.Int(f) < 0 {
			return o, clix.Usagef("--%s %d: want a positive number", f, c.Int(f))
		}
	}
	if o.Threads > maxThreads {
		return o, clix.Usagef("--threads %d: want at most %d", o.Threads, maxThreads)
	}
	if m := c.Float64("margin"); !(m >= 0 && m <= math.MaxFloat32) {
		return o, clix.Usagef("--margin %v: want a finite number from 0", m)
	}
	if d := c.String("dense-layers"); d != "auto" {
		n, err := strconv.Atoi(d)
		if err != nil || n < 1 {
			return o, clix.Usagef("--dense-layers %s: want a number from 1 or auto", d)
		}
		o.Dense = n
	}
	switch g := c.String("gap"); g {
	case "": // a command without the flag
	case "auto":
		o.Storage.Gap = -1
	default:
		n, err := clix.ParseSize(g)
		if err != nil || n < 0 || n > 1<<20 {
			return o, clix.Usagef("--gap %s: want auto or a size up to 1MiB", g)
		}
		o.Storage.Gap = int(n)
	}
	if m := c.String("read-budget"); m != "" {
		n, err := clix.ParseSize(m)
		if err != nil {
			return o, clix.Usagef("--read-budget %s: %v", m, err)
		}
		if n == 0 {
			return o, clix.Usagef("--read-budget %s: want more than nothing", m)
		}
		o.ReadBudget = n
	}
	if m := c.String("memory"); m != "" {
		n, err := clix.ParseSize(m)
		if err != nil {
			return o, clix.Usagef("--memory %s: %v", m, err)
		}
		if n == 0 {
			return o, clix.Usagef("--memory %s: want more than nothing", m)
		}
		o.Memory = n
	}
	for flag, want := range map[string][]string{"mode": {engine.ModeAuto, engine.ModeResident, engine.ModeStream, engine.ModeSparse},
		"io": {"auto", "uring", "pread"}, "direct": {"auto", "require", "off"}} {
		if err := oneOf(flag, c.String(flag), want); err != nil {
			return o, err
		}
	}
	return o, nil
}

func oneOf(flag, got string, want []string) error {
	for _, w := range want {
		if got == w {
			return nil
		}
	}
	return clix.Usagef("--%s %s: want one of %v", flag, got, want)
}

// open starts an engine and tells on stderr what it is.
func open(c *cli.Context) (*engine.Engine, error) {
	o, err := engineOptions(c)
	if err != nil {
		return nil, err
	}
	return openBundle(c, c.String("bundle"), o)
}

// openBundle is open for options that were read and changed.
func openBundle(c *cli.Context, dir string, o engine.Options) (*engine.Engine, error) {
	say, calibrated := notes(c), ""
	if b, err := bundle.Open(dir); err == nil { // engine.Open says what is wrong with it
		calibrated = useCalibration(&o, b, c.IsSet("gap"))
		if o.Storage.QueueDepth == 0 {
			o.Storage.QueueDepth = measuredDepth(b)
		}
	}
	report, end := clix.ByteProgress(say, "loading")
	o.Progress = report
	e, err := engine.Open(c.Context, dir, o)
	end()
	if err != nil {
		return nil, err
	}
	if calibrated != "" && e.Plan.Mode == engine.ModeSparse {
		fmt.Fprintf(say, "note: %s\n", calibrated)
	}
	for _, n := range e.IO().Notes {
		fmt.Fprintf(say, "note: %s\n", n)
	}
	if e.Plan.Note != "" {
		fmt.Fprintf(say, "note: %s\n", e.Plan.Note)
	}
	for _, f := range unused(c, e.Plan.Mode) {
		fmt.Fprintf(say, "note: --%s does nothing in %s mode\n", f, e.Plan.Mode)
	}
	return e, nil
}

// unused are the flags that were given and that a run in this mode has no use for.
func unused(c *cli.Context, mode string) (names []string) {
	if mode == engine.ModeSparse {
		return nil
	}
	for _, f := range []string{"k-max", "selector", "margin", "rows-per-token", "read-budget"} {
		if c.IsSet(f) {
			names = append(names, f)
		}
	}
	return names
}

// measuredDepth is the queue depth that suits the bundle's records on its drive, by the curve that bench --drive kept; 0
// without one.
func measuredDepth(b *bundle.Bundle) int {
	cache, err := cacheDir()
	if err != nil {
		return 0
	}
	c, ok := measure.KeptCurve(cache, b.Path(bundle.MemberRows))
	if !ok {
		return 0
	}
	return c.Depth(c.Usual(), b.Manifest.Rows.Stride)
}

// notes is where remarks go: stderr, or nowhere with --quiet.
func notes(c *cli.Context) io.Writer {
	if c.Bool("quiet") {
		return io.Discard
	}
	return os.Stderr
}
