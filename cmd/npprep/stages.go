package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/prepare"
	"neuroprefetcher/prep/self"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/train"
	"neuroprefetcher/runtime/engine"
)

// stageCommand makes the command of one stage.
func stageCommand(name, usage, example string, sets ...flagSet) *cli.Command {
	if name == "train" {
		sets = append(sets, exportFlags, importFlags)
	}
	return &cli.Command{
		Name: name, Usage: usage, UsageText: example,
		Description: "Does nothing if its outputs in the work folder are up to date; goes on where an interrupted run stopped.\n\nExample:\n   " + example,
		Flags:       flags(append(sets, runFlags)),
		Action: func(c *cli.Context) error {
			if dir := c.String("export"); dir != "" {
				return exportTraining(c, dir)
			}
			return run(c, func(ctx context.Context, e *stage.Env, o prepare.Options) error {
				if o.Self > 0 && name != self.Name {
					if _, err := self.Run(ctx, e, self.Options{Checkpoint: o.Checkpoint, Tokens: o.Self, Window: o.Window}); err != nil {
						return err
					}
				}
				s, _ := prepare.Find(name)
				_, err := s.Run(ctx, e, o)
				return err
			})
		},
	}
}

// exportTraining writes the train stage's data set instead of running it.
func exportTraining(c *cli.Context, dir string) error {
	if c.IsSet("import") {
		return clix.Usagef("--export and --import: give one")
	}
	var values map[string]any
	err := open(c, func(ctx context.Context, e *stage.Env, o prepare.Options) (err error) {
		values, err = train.Export(ctx, e, train.Options{Config: o.Checkpoint.Config, Dim: o.Dim, Epochs: o.Epochs, Batch: o.Batch, LR: o.LR}, dir)
		return err
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return clix.WriteJSON(c.App.Writer, values)
	}
	_, err = fmt.Fprintf(c.App.Writer, "export     %v: %v tokens to train on, %v held out; width %v, %v parameters\n",
		dir, values["tokens"], values["heldout_tokens"], values["dim"], values["parameters"])
	return err
}

func prepareCommand() *cli.Command {
	return &cli.Command{
		Name: "prepare", Usage: "do everything: calibrate, repack and bundle",
		UsageText: "npprep prepare --model DIR --out DIR [--text FILE ...] [--sparsity S | --k-max N] [--dense]",
		Description: "Runs all stages in order and skips what is up to date. Without --work, the work folder is the bundle's name with .work behind it.\n\n" +
			"Examples:\n   npprep prepare --model Mistral-7B-v0.1 --text calibration.txt --sparsity 0.62 --out mistral.np\n" +
			"   npprep prepare --model Mistral-7B-v0.1 --dense --out mistral-dense.np",
		Flags: flags([]flagSet{modelFlag, workFlag, bundleFlags, textFlags, clusterFlags, trainFlags, importFlags, selectorFlags, vocabFlags, lookaheadFlags, regressFlags, repackFlags, tuneFlags, runFlags}),
		Action: func(c *cli.Context) error {
			return run(c, func(ctx context.Context, e *stage.Env, o prepare.Options) error {
				_, err := prepare.Run(ctx, e, o)
				return err
			})
		},
	}
}

func flags(sets []flagSet) []cli.Flag {
	var out []cli.Flag
	for _, s := range sets {
		out = append(out, s()...)
	}
	return out
}

// run opens the checkpoint, runs f and prints the reports.
func run(c *cli.Context, f func(ctx context.Context, e *stage.Env, o prepare.Options) error) error {
	var reports []stage.Report
	err := open(c, func(ctx context.Context, e *stage.Env, o prepare.Options) error {
		err := f(ctx, e, o)
		reports = e.Reports()
		return err
	})
	if err != nil {
		return err
	}
	return printReports(c, reports)
}

// open reads the flags, opens the checkpoint and runs f.
func open(c *cli.Context, f func(ctx context.Context, e *stage.Env, o prepare.Options) error) error {
	e, err := env(c)
	if err != nil {
		return err
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	if err := selfText(&o, e.Work); err != nil {
		return err
	}
	if o.Checkpoint, err = checkpoint.Open(c.String("model")); err != nil {
		return err
	}
	defer o.Checkpoint.Close()
	for _, w := range o.Checkpoint.Warnings {
		e.Warn("%s", w)
	}
	e.Pool = kernels.NewPool(e.Threads)
	defer e.Pool.Close()
	if err := f(c.Context, e, o); err != nil {
		if c.Context.Err() != nil {
			return format.Hint(c.Context.Err(), "the next run goes on from here")
		}
		return err
	}
	return nil
}

// selfText takes a text self:TOKENS for the file that the self stage will write.
func selfText(o *prepare.Options, work string) error {
	for i, name := range o.Texts {
		tokens, ok := strings.CutPrefix(name, "self:")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(tokens)
		switch {
		case !o.Shard.All():
			return clix.Usagef("--text %s does not go with --shard: write the text first, with npprep self, and name its file", name)
		case o.Self > 0:
			return clix.Usagef("--text %s: the model writes one text: name it once", name)
		case err != nil || n < 1 || n > self.MaxTokens:
			return clix.Usagef("--text %s: want self:TOKENS, 1 to %d tokens", name, self.MaxTokens)
		}
		o.Self, o.Texts[i] = n, self.File(work)
	}
	return nil
}

// maxTuneWindows is about what the longest text has.
const maxTuneWindows = 100_000

// maxThreads is far beyond what any stage can use.
const maxThreads = 1024

// env is the surroundings of the stages.
func env(c *cli.Context) (*stage.Env, error) {
	if err := clix.NoArgs(c); err != nil {
		return nil, err
	}
	e := &stage.Env{Work: c.String("work"), Threads: c.Int("threads"), Seed: c.Uint64("seed"), Quiet: c.Bool("quiet"), JSON: c.Bool("json"), Log: c.App.ErrWriter}
	if e.Work == "" && c.Command.Name == "prepare" && c.String("out") != "" {
		e.Work = filepath.Clean(c.String("out")) + ".work" // beside the bundle, even if its path ends in a slash
	}
	switch {
	case c.String("model") == "":
		return nil, clix.Usagef("no checkpoint given (--model DIR)")
	case e.Work == "" && c.Command.Name != "prepare":
		return nil, clix.Usagef("no work folder given (--work DIR)")
	case e.Threads > maxThreads:
		return nil, clix.Usagef("--threads %d: want at most %d", e.Threads, maxThreads)
	case e.Threads < 0:
		return nil, clix.Usagef("--threads %d", e.Threads)
	case e.Threads > 0:
		runtime.GOMAXPROCS(e.Threads)
	}
	return e, memory(c.String("memory"), e)
}

// memory sets the limit: what the machine and the container leave, or less where the user says so.
func memory(flag string, e *stage.Env) error {
	left, source := engine.AvailableMemory()
	e.Memory = left
	if flag != "" {
		n, err := clix.ParseSize(flag)
		if err != nil {
			return clix.Usagef("--memory: %v", err)
		}
		if n <= 0 {
			return clix.Usagef("--memory %s: must be above 0", flag)
		}
		if n > left {
			e.Warn("--memory %s is more than there is: %s (%s)", flag, clix.FormatSize(left), source)
		}
		e.Memory = min(n, left)
	}
	debug.SetMemoryLimit(e.Memory)
	return nil
}

// options reads the flags that the command has; a flag it does not have is the zero value.
func options(c *cli.Context) (prepare.Options, error) {
	o := prepare.Options{
		Texts: c.StringSlice("text"), Tokens: c.Int("tokens"), Window: c.Int("window"), Density: c.Float64("density"),
		Centroids: c.Int("centroids"),
		Dim:       c.Int("dim"), Epochs: c.Int("epochs"), Batch: c.Int("batch"), LR: c.Float64("lr"), Import: c.String("import"),
		Rank: c.Int("rank"), DenseLayers: c.Int("dense-layers"), Ramp: c.Int("ramp"),
		JointCentroids: c.Int("joint-centroids"), VocabTokens: c.Int("vocab-tokens"),
		RecordAlign: c.Int("record-align"), TuneWindows: c.Int("tune-windows"),
		Out: c.String("out"), Dense: c.Bool("dense"), KMax: c.Int("k-max"), Sparsity: c.Float64("sparsity"),
		Tool: "npprep " + clix.Version,
	}
	if s := c.String("selectors"); s != "" {
		o.Selectors = strings.Split(s, ",")
		if err := assemble.CheckSelectors(o.Selectors); err != nil {
			return o, clix.Usagef("--selectors: %w", err)
		}
	}
	name, ahead := c.Command.Name, c.Float64("lookahead")
	if c.IsSet("lookahead") {
		o.Lag = int(2*ahead) + 1
	}
	if name == self.Name {
		o.Self = o.Tokens
	}
	if c.IsSet("shard") {
		var err error
		if o.Shard, err = stage.ParseShard(c.String("shard")); err != nil {
			return o, clix.Usagef("--%v", err)
		}
	}
	needsOut := name == "bundle" || name == "tune" || name == "prepare"
	needsText := name == "threshold" || name == "capture" || name == "vocab" || name == "moments" || name == "tune" || name == "prepare" && !o.Dense
	switch {
	case needsOut && o.Out == "":
		return o, clix.Usagef("no bundle directory given (--out DIR)")
	case needsText && len(o.Texts) == 0:
		return o, clix.Usagef("no calibration text given (--text FILE, or --dense)")
	case name == self.Name && (o.Self < 1 || o.Self > self.MaxTokens):
		return o, clix.Usagef("--tokens %d: want 1 to %d tokens of text", o.Self, self.MaxTokens)
	case o.Dense && (c.IsSet("k-max") || c.IsSet("sparsity")):
		return o, clix.Usagef("--dense does not go with --k-max or --sparsity")
	case c.IsSet("k-max") && c.IsSet("sparsity"):
		return o, clix.Usagef("--k-max and --sparsity say the same: give one")
	case c.IsSet("k-max") && o.KMax < 1:
		return o, clix.Usagef("--k-max %d: must be at least 1", o.KMax)
	case needsOut && !(o.Sparsity >= 0 && o.Sparsity < 1):
		return o, clix.Usagef("--sparsity %v: must be at least 0 and below 1", o.Sparsity)
	case needsText && name != "moments" && name != "vocab" && name != "tune" && !(o.Density > 0 && o.Density <= 1):
		return o, clix.Usagef("--density %v: must be above 0 and at most 1", o.Density)
	case !(ahead >= 0 && ahead <= 31) || 2*ahead != math.Trunc(2*ahead):
		return o, clix.Usagef("--lookahead %v: must be 0 to 31 layers, in halves", ahead)
	case o.RecordAlign != 0 && o.RecordAlign != 4096:
		return o, clix.Usagef("--record-align %d: must be 4096, or left out", o.RecordAlign)
	case !(o.LR >= 0 && o.LR < 1):
		return o, clix.Usagef("--lr %v: must be above 0 and below 1", o.LR)
	case o.Dense && (c.IsSet("selectors") || c.IsSet("import")):
		return o, clix.Usagef("--dense does not go with --selectors or --import")
	case o.Import != "" && o.Selectors != nil && !slices.Contains(o.Selectors, bundle.SelectorPaper) && !slices.Contains(o.Selectors, bundle.SelectorPaperPlus):
		return o, clix.Usagef("--import goes with the selectors paper and paper+, --selectors names neither")
	case name == "tune" && o.Dense:
		return o, clix.Usagef("--dense: a dense bundle has no selector to measure")
	case o.TuneWindows < -1 || o.TuneWindows > maxTuneWindows || c.IsSet("tune-windows") && o.TuneWindows == 0:
		return o, clix.Usagef("--tune-windows %d: want 1 to %d, or -1 for none", o.TuneWindows, maxTuneWindows)
	case c.IsSet("lr") && o.LR == 0:
		return o, clix.Usagef("--lr 0: must be above 0 and below 1")
	}
	for _, flag := range []string{"tokens", "window", "centroids", "dim", "epochs", "batch", "rank", "dense-layers", "ramp", "joint-centroids", "vocab-tokens"} {
		least := 0 // the default
		if flag == "centroids" || flag == "epochs" || flag == "batch" {
			least = 1
		}
		if n := c.Int(flag); c.IsSet(flag) && n < least {
			return o, clix.Usagef("--%s %d: must be at least %d", flag, n, least)
		}
	}
	return o, nil
}
