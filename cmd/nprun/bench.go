package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"gonum.org/v1/gonum/stat"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure generation: speed, latency, what it waits for, what it reads",
		Description: "Generates greedily, past the end of the text, and reports the tokens after the warm-up.\n\nExamples:\n" +
			"  nprun bench -b BUNDLE --max-tokens 128\n  nprun bench -b BUNDLE --mode stream --memory 2GiB --json\n" +
			"  nprun bench --synthetic mistral-7b --dir /data --memory 9GiB --reuse 0.83\n  nprun bench --drive -b BUNDLE\n  nprun bench --drive --file /data/any.file\n" +
			"  nprun bench --synthetic mistral-7b --dir /data --memory 9GiB --sweep k-max=5500,7168,9865 --plots figures",
		Flags: append(append(append(engineFlags(), syntheticFlags()...), driveFlags()...), sweepFlag(),
			plotsFlag("where the time goes, reads and reuse over tokens, with --drive the drive's curve, with --sweep speed, time and reads over its values"),
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Value: "The history of the region", Usage: "`TEXT` to continue; - reads stdin"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: 128, Usage: "measure `N` tokens"},
			&cli.IntFlag{Name: "warmup", Value: 8, Usage: "leave `N` tokens out before measuring"}),
		Action: bench,
	}
}

// tooLong refuses a run that the context does not hold.
func tooLong(prompt, n int) error {
	return format.Hint(format.Inputf("%d prompt tokens and %d to generate do not fit the context", prompt, n), fmt.Sprintf("give --context %d", prompt+n))
}

// latencies are percentiles of the time per token in seconds.
type latencies struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func bench(c *cli.Context) error {
	n, warm := c.Int("max-tokens"), c.Int("warmup")
	if n < 1 || warm < 0 {
		return clix.Usagef("--max-tokens %d --warmup %d: want at least 1 and 0", n, warm)
	}
	prompt, err := promptText(c.String("prompt"))
	if err != nil {
		return err
	}
	if c.IsSet("spell") && !c.Bool("drive") {
		return clix.Usagef("--spell needs --drive")
	}
	if c.String("file") != "" {
		return benchFile(c)
	}
	if c.IsSet("sweep") {
		return benchSweep(c, n, warm, prompt)
	}
	w, err := newWorkload(c, warm+n)
	if err != nil {
		return err
	}
	var m *machine
	if c.Bool("drive") {
		if m, err = measureMachine(c, w.dir, w.o.Threads); err != nil {
			return err
		}
	}
	e, err := openBundle(c, w.dir, w.o)
	if err != nil {
		return err
	}
	done := sync.OnceFunc(e.Close)
	defer done()
	ids := rawIDs(e, prompt)
	if need := len(ids) + warm + n; need > e.Context() {
		return tooLong(len(ids), warm+n)
	}
	var lat []float64
	var trace tokenTrace
	var before processStats
	prompted, err := measure.Steps(c.Context, e, ids, warm, n, func() { before = countProcess() }, func(d time.Duration) {
		lat = append(lat, d.Seconds())
		trace.add(e.Stats(), d)
	})
	if err != nil {
		return err
	}
	counted := countProcess().since(before)
	slices.Sort(lat)
	at := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, lat, nil) }
	l := latencies{at(.5), at(.9), at(.99), at(1)}
	s := collect(e, w.dir)
	s.Prompt, s.PromptTime, s.PromptRead = prompted.Prompt, prompted.PrefillTime.Seconds(), prompted.PrefillIO.Bytes
	io := newIOStats(e, m)
	var drawn error // told when the result is out: it is not lost with a figure
	if c.String("plots") != "" {
		done()
		figures := trace.figures(s, runNote(s, w))
		if m != nil {
			maps.Copy(figures, curveFigures(m.curve))
		}
		drawn = drawAll(c, figures)
	}
	if c.Bool("json") {
		return errors.Join(clix.WriteJSON(stdout, struct {
			runStats
			Latency latencies `json:"latency_s"`
			ioStats
			Process   processStats   `json:"process"`
			Synthetic *syntheticRun  `json:"synthetic,omitempty"`
			Drive     *measure.Curve `json:"drive,omitempty"`
		}{s, l, io, counted, w.run, m.drive()}), drawn)
	}
	t := table.NewWriter()
	t.SetOutputMirror(stdout)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	row := func(name, format string, a ...any) { t.AppendRow(table.Row{name, fmt.Sprintf(format, a...)}) }
	all := float64(s.Tokens) / s.TokPerS
	part := func(x float64) string {
		return fmt.Sprintf("%s per token (%.0f%%)", seconds(x/float64(s.Tokens)), 100*x/all)
	}
	if w.run != nil {
		row("measured", "%s", w.run.describe())
	}
	if s.Mode == engine.ModeSparse {
		row("mode", "%s, d = %d, K_max = %d, %s", s.Mode, s.Dense, s.KMax, s.Selector)
	} else {
		row("mode", "%s, %s in memory", s.Mode, s.held)
	}
	row("speed", "%.2f tok/s over %d tokens; prompt %.1f tok/s over %d", s.TokPerS, s.Tokens, float64(s.Prompt)/s.PromptTime, s.Prompt)
	row("latency", "p50 %s, p90 %s, p99 %s, max %s", seconds(l.P50), seconds(l.P90), seconds(l.P99), seconds(l.Max))
	row("computing", "%s", part(s.Breakdown.Compute))
	row("waiting for rows", "%s", part(s.Breakdown.IOWait))
	row("predicting", "%s", part(s.Breakdown.Predict))
	row("reads", "%s per token in %.1f reads of %s", clix.FormatSize(int64(s.ReadPerToken)), s.ReadsPerTok, clix.FormatSize(int64(s.MeanRead)))
	if s.Mode == engine.ModeSparse {
		row("reuse", "%.3f: %d of %d rows read", s.Reuse, s.RowsRead, s.RowsNeeded)
	}
	if s.ReadBytes > 0 {
		row("reading at", "%s", io)
	}
	if io.Bound != nil {
		row("bound", "%s", io.Bound)
	}
	slots := "slots not registered"
	if s.Registered {
		slots = "slots registered"
	}
	row("reading by", "%s, direct %v, depth %d, gap %s, %s", s.IO, s.Direct, s.QueueDepth, clix.FormatSize(int64(s.Gap)), slots)
	row("memory", "peak %s, budget %s", clix.FormatSize(s.PeakRSS), clix.FormatSize(s.Budget))
	t.Render()
	if m != nil {
		fmt.Fprintln(stdout)
		renderCurve(m.curve)
	}
	return drawn
}
