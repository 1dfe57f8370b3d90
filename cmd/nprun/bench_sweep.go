package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"
	"gonum.org/v1/gonum/stat"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/cmd/internal/plots"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

// sweeps are what bench --sweep can vary, with the words for its axis.
var sweeps = map[string]plots.Axis{
	"k-max":        {Label: "K_max", Unit: "neurons"},
	"dense-layers": {Label: "dense prefix d", Unit: "layers"},
	"reuse":        {Label: "reuse of the trace"},
	"context":      {Label: "context in use", Unit: "tokens"},
}

// maxSweep bounds the runs of one sweep.
const maxSweep = 64

func sweepFlag() cli.Flag {
	return &cli.StringFlag{Name: "sweep", Usage: "measure once for each value of one flag, `NAME=V,V,…` with k-max, dense-layers, reuse or context; for context the prompt is repeated until that many tokens are in use"}
}

// sweepPoint is one run of a sweep.
type sweepPoint struct {
	Value float64 `json:"value"`
	runStats
	Latency latencies `json:"latency_s"`
}

// parseSweep reads NAME=V,V,…
func parseSweep(s string) (name string, values []string, err error) {
	name, list, ok := strings.Cut(s, "=")
	if _, known := sweeps[name]; !ok || !known {
		return "", nil, clix.Usagef("--sweep %s: want k-max, dense-layers, reuse or context, =, and values with commas", s)
	}
	values = strings.Split(list, ",")
	if len(values) < 2 || len(values) > maxSweep {
		return "", nil, clix.Usagef("--sweep %s: want 2 to %d values", s, maxSweep)
	}
	seen := map[float64]bool{}
	for _, v := range values {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil || !(x >= 0) || x > 1e9 || name != "reuse" && (x < 1 || x != float64(int(x))) {
			return "", nil, clix.Usagef("--sweep %s: %q is no value of --%s", s, v, name)
		}
		if seen[x] {
			return "", nil, clix.Usagef("--sweep %s: %s is named twice", s, v)
		}
		seen[x] = true
	}
	return name, values, nil
}

// benchSweep is bench --sweep.
func benchSweep(c *cli.Context, n, warm int, prompt string) error {
	name, values, err := parseSweep(c.String("sweep"))
	if err != nil {
		return err
	}
	if c.IsSet(name) {
		return clix.Usagef("--sweep %s and --%s exclude each other", name, name)
	}
	if c.Bool("drive") {
		return clix.Usagef("--sweep and --drive exclude each other")
	}
	var points []sweepPoint
	var w *workload
	dir := c.String("bundle")
	for i, v := range values {
		if err := c.Set(name, v); err != nil {
			return clix.Usagef("--sweep: %v", err)
		}
		if err := c.Set("bundle", dir); err != nil { // a synthetic workload sets its own
			return err
		}
		p := sweepPoint{}
		p.Value, _ = strconv.ParseFloat(v, 64)
		if w, err = p.run(c, name, n, warm, prompt); err != nil {
			if strings.HasPrefix(err.Error(), "--") { // it names its flag itself
				return err
			}
			return fmt.Errorf("--%s %s: %w", name, v, err)
		}
		fmt.Fprintf(notes(c), "%d of %d: %s = %s: %.2f tok/s\n", i+1, len(values), name, v, p.TokPerS)
		points = append(points, p)
	}
	slices.SortFunc(points, func(a, b sweepPoint) int {
		if a.Value < b.Value {
			return -1
		}
		return 1
	})
	drawn := drawAll(c, sweepFigures(name, points, w))
	if c.Bool("json") {
		return errors.Join(clix.WriteJSON(stdout, struct {
			Sweep     string        `json:"sweep"`
			Points    []sweepPoint  `json:"points"`
			Synthetic *syntheticRun `json:"synthetic,omitempty"`
		}{name, points, w.run}), drawn)
	}
	if w.run != nil {
		if name == "reuse" {
			w.run.Trace = nil // the last value's
		}
		fmt.Fprintln(stdout, w.run.describe())
	}
	t := table.NewWriter()
	t.SetOutputMirror(stdout)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{name, "tok/s", "p50", "p99", "waiting", "read per token", "reuse", "peak"})
	var right []table.ColumnConfig
	for i := range 8 {
		right = append(right, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	for _, p := range points {
		b := p.Breakdown
		t.AppendRow(table.Row{strconv.FormatFloat(p.Value, 'f', -1, 64), fmt.Sprintf("%.2f", p.TokPerS), seconds(p.Latency.P50), seconds(p.Latency.P99),
			fmt.Sprintf("%.0f%%", 100*b.IOWait/(b.IOWait+b.Compute+b.Predict+b.Other)), clix.FormatSize(int64(p.ReadPerToken)), fmt.Sprintf("%.3f", p.Reuse), clix.FormatSize(p.PeakRSS)})
	}
	t.Render()
	return drawn
}

// run measures one value.
func (p *sweepPoint) run(c *cli.Context, name string, n, warm int, prompt string) (*workload, error) {
	w, err := newWorkload(c, warm+n)
	if err != nil {
		return nil, err
	}
	measure.ForgetPeak() // of the value before
	e, err := openBundle(c, w.dir, w.o)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if mode := e.Plan.Mode; mode == engine.ModeResident && name != "context" || mode == engine.ModeStream && (name == "k-max" || name == "reuse") {
		return nil, format.Hint(clix.Usagef("--sweep %s: nothing of it matters in %s mode", name, mode), "give --mode sparse")
	}
	ids := rawIDs(e, prompt)
	if name == "context" { // fill it
		want := e.Context() - warm - n
		if want < 1 || len(ids) == 0 {
			return nil, format.Inputf("%d tokens to generate leave no room for a prompt", warm+n)
		}
		for part := ids; len(ids) < want; {
			ids = append(ids, part...)
		}
		ids = ids[:want]
	}
	if need := len(ids) + warm + n; need > e.Context() {
		return nil, tooLong(len(ids), warm+n)
	}
	var lat []float64
	prompted, err := measure.Steps(c.Context, e, ids, warm, n, nil, func(d time.Duration) { lat = append(lat, d.Seconds()) })
	if err != nil {
		return nil, err
	}
	slices.Sort(lat)
	at := func(q float64) float64 { return stat.Quantile(q, stat.Empirical, lat, nil) }
	p.Latency = latencies{at(.5), at(.9), at(.99), at(1)}
	p.runStats = collect(e, w.dir)
	p.Prompt, p.PromptTime, p.PromptRead = prompted.Prompt, prompted.PrefillTime.Seconds(), prompted.PrefillIO.Bytes
	return w, nil
}

// sweepFigures are speed over the value, and where the time goes and what is read at each.
func sweepFigures(name string, points []sweepPoint, w *workload) map[string]plots.Figure {
	axis := sweeps[name]
	s := points[len(points)-1].runStats
	what := "bundle " + s.Bundle
	if w.run != nil {
		what = "synthetic weights in the shape of " + w.run.Shape
	}
	note := fmt.Sprintf("%s; %s mode, %s, budget %s, median token of %d", what, s.Mode, s.IO, clix.FormatSize(s.Budget), s.Tokens)
	speed := plots.Figure{Title: "Speed over " + axis.Label, Note: note, X: axis, Y: plots.Axis{Label: "speed", Unit: "tok/s"}}
	line := plots.Series{Name: "speed"}
	parts := []plots.Series{{Name: "computing"}, {Name: "waiting for rows"}, {Name: "predicting"}, {Name: "other"}}
	stack := plots.Figure{Kind: plots.Stacked, Title: "Where a token's time goes, over " + axis.Label, Note: strings.Replace(note, "median token of", "mean of", 1), X: axis,
		Y: plots.Axis{Label: "time per token", Unit: "ms"}, Values: true}
	read := plots.Series{Name: "read"}
	for _, p := range points {
		line.X, line.Y = append(line.X, p.Value), append(line.Y, 1/p.Latency.P50)
		read.X, read.Y = append(read.X, p.Value), append(read.Y, p.ReadPerToken/(1<<20))
		stack.Categories = append(stack.Categories, strconv.FormatFloat(p.Value, 'f', -1, 64))
		b := p.Breakdown
		for i, v := range []float64{b.Compute, b.IOWait, b.Predict, max(b.Other, 0)} {
			parts[i].Y = append(parts[i].Y, 1e3*v/float64(p.Tokens))
		}
	}
	speed.Series, stack.Series = []plots.Series{line}, parts
	return map[string]plots.Figure{"speed-over-" + name: speed, "time-over-" + name: stack,
		"reads-over-" + name: {Title: "Read volume over " + axis.Label, Note: note, X: axis, Y: plots.Axis{Label: "read per token", Unit: "MiB"}, Series: []plots.Series{read}}}
}
