package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/cmd/internal/plots"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

func calibrateCommand() *cli.Command {
	return &cli.Command{
		Name:  "calibrate",
		Usage: "find the dense prefix that is the fastest on this device",
		Description: "Runs some tokens with one dense prefix after the other under the memory budget, and reading whole layers (stream),\n" +
			"and keeps the fastest in BUNDLE.calibration.json, beside the bundle, with what reading through small gaps and\n" +
			"reading less (--rows-per-token) bring.\n" +
			"--dense-layers auto, the default gap and plan use it.\n\n" +
			"Examples:\n  nprun calibrate -b BUNDLE --memory 8GiB\n  nprun calibrate --synthetic tinyllama-1.1b --dir /data --memory 1500MiB --json",
		Flags: append(append(engineFlags(), syntheticFlags()...), plotsFlag("speed over the dense prefix, with what bounds it"),
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Value: "The history of the region", Usage: "`TEXT` to continue; - reads stdin"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: 12, Usage: "measure `N` tokens per point"},
			&cli.IntFlag{Name: "warmup", Value: 4, Usage: "leave `N` tokens out before measuring"}),
		Action: calibrate,
	}
}

func calibrate(c *cli.Context) error {
	n, warm := c.Int("max-tokens"), c.Int("warmup")
	if n < 1 || warm < 0 {
		return clix.Usagef("--max-tokens %d --warmup %d: want at least 1 and 0", n, warm)
	}
	for _, f := range []string{"mode", "dense-layers", "gap"} {
		if c.IsSet(f) {
			return clix.Usagef("--%s: what calibrate tries is its own choice", f)
		}
	}
	prompt, err := promptText(c.String("prompt"))
	if err != nil {
		return err
	}
	w, err := newWorkload(c, warm+n)
	if err != nil {
		return err
	}
	say, start := notes(c), time.Now()
	cal, err := measure.Calibrate(c.Context, w.dir, measure.CalibrateOptions{Engine: w.o, Tokens: n, Warm: warm,
		Prompt: func(e *engine.Engine) []int32 { return rawIDs(e, prompt) },
		Report: func(p measure.Point, done, total int) {
			fmt.Fprintf(say, "%d of at most %d, after %s: %s, d = %d: %.2f tok/s\n", done, total, clix.Duration(time.Since(start)), p.Mode, p.Dense, p.TokPerS)
		}})
	if err != nil {
		return err
	}
	cache, _ := cacheDir()                 // "" where there is none: then only beside the bundle
	kept, failed := cal.Keep(w.dir, cache) // told when the result is out: hours of measuring are not lost with it
	if failed != nil {
		kept, failed = "", fmt.Errorf("the calibration was not kept: %w", failed)
	}
	model := filepath.Base(filepath.Clean(w.dir))
	if w.run != nil {
		model = "synthetic weights in the shape of " + w.run.Shape
	}
	failed = errors.Join(failed, drawAll(c, map[string]plots.Figure{"calibration": calibrationFigure(cal, model)}))
	if c.Bool("json") {
		return errors.Join(clix.WriteJSON(stdout, struct {
			*measure.Calibration
			File      string        `json:"file"`
			Synthetic *syntheticRun `json:"synthetic,omitempty"`
		}{cal, kept, w.run}), failed)
	}
	if w.run != nil {
		fmt.Fprintln(stdout, w.run.describe())
	}
	renderCalibration(cal)
	if kept != "" {
		fmt.Fprintf(stdout, "kept in %s\n", kept)
	}
	return failed
}

// renderCalibration draws tok/s over d.
func renderCalibration(c *measure.Calibration) {
	most, fastest := 0.0, ""
	for _, p := range c.Points {
		if p.TokPerS > most {
			most, fastest = p.TokPerS, p.Mode
		}
	}
	t := table.NewWriter()
	t.SetOutputMirror(stdout)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"mode", "d", "tok/s", "", "waiting", "drive busy", "read per token", "mostly"})
	var right []table.ColumnConfig
	for _, i := range []int{2, 3, 5, 6, 7} {
		right = append(right, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	for _, p := range c.Points {
		mark := ""
		if p.Mode == engine.ModeSparse && p.Dense == c.Best {
			mark = " d*"
		}
		t.AppendRow(table.Row{p.Mode, p.Dense, fmt.Sprintf("%.2f", p.TokPerS), strings.Repeat("█", int(30*p.TokPerS/most+0.5)) + mark,
			fmt.Sprintf("%.0f%%", 100*p.IOWait), fmt.Sprintf("%.0f%%", 100*p.IOBusy), clix.FormatSize(int64(p.Read)), regime(p)})
	}
	t.Render()
	for _, g := range c.Gaps {
		mark := ""
		if g.Bytes == c.Gap {
			mark = ", taken"
		}
		fmt.Fprintf(stdout, "d* reading through gaps of at most %s: %.2f tok/s, %s per token%s\n", clix.FormatSize(int64(g.Bytes)), g.TokPerS, clix.FormatSize(int64(g.Read)), mark)
	}
	for _, l := range c.Limits[min(1, len(c.Limits)):] {
		fmt.Fprintf(stdout, "d* with --rows-per-token %d: %.2f tok/s, %s per token\n", l.Rows, l.TokPerS, clix.FormatSize(int64(l.Read)))
	}
	fmt.Fprintf(stdout, "fastest dense prefix: %s with %s, K_max %d, %d threads\n", c, clix.FormatSize(c.Budget), c.KMax, c.Threads)
	if fastest == engine.ModeStream {
		fmt.Fprintln(stdout, "stream was faster than any of them, and is exact: --mode stream")
	}
}

// useCalibration takes the gap (unless --gap was given) and the dense prefix that were calibrated for the bundle, where the
// options leave it open, and returns a line that says so, or "".
func useCalibration(o *engine.Options, b *bundle.Bundle, gapAsked bool) string {
	if o.Dense > 0 || b.Manifest.Sparse == nil {
		return ""
	}
	cache, _ := cacheDir()
	cal, ok := measure.KeptCalibration(b, cache)
	if !ok {
		return ""
	}
	if !gapAsked && cal.Gap > 0 {
		o.Storage.Gap = cal.Gap
	}
	if o.Calibrated = cal.Dense(o.KMax, b.Manifest.Sparse.KMax); o.Calibrated == 0 {
		return ""
	}
	return fmt.Sprintf("--dense-layers %d, as calibrated for this bundle", o.Calibrated)
}
