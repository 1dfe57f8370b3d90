package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/cmd/internal/plots"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

func plotsFlag(what string) cli.Flag {
	return &cli.StringFlag{Name: "plots", Usage: "draw " + what + " as SVG and PNG into `DIR`"}
}

// drawAll draws figures into --plots, if it is given, and names the files on stderr. It is to be called when the engine is
// closed: drawing takes some megabytes.
func drawAll(c *cli.Context, figures map[string]plots.Figure) error {
	dir := c.String("plots")
	if dir == "" {
		return nil
	}
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := plots.Write(dir, name, figures[name]); err != nil {
			return err
		}
		fmt.Fprintf(notes(c), "drew %s.svg and .png\n", filepath.Join(dir, name))
	}
	return nil
}

// tokenRow is what one token took and read.
type tokenRow struct {
	took, wait, compute, predict time.Duration
	read                         int64
	needed, rows                 int64 // of the sparse layers: computed, and read for it
}

// tokenTrace notes every measured token.
type tokenTrace struct {
	last engine.Stats
	rows []tokenRow
}

// add notes a token by what the engine counts since the one before.
func (t *tokenTrace) add(s engine.Stats, took time.Duration) {
	l := t.last
	t.rows = append(t.rows, tokenRow{took, s.IOWait - l.IOWait, s.Compute - l.Compute, s.Predict - l.Predict, s.StepIO.Bytes - l.StepIO.Bytes, s.Needed - l.Needed, s.Read - l.Read})
	t.last = s
}

// figures are where the time goes, for the mean and for tokens at percentiles, and what is read and reused, over tokens.
func (t *tokenTrace) figures(s runStats, note string) map[string]plots.Figure {
	all := map[string]plots.Figure{}
	if len(t.rows) == 0 {
		return all
	}
	byTime := slices.Clone(t.rows)
	slices.SortStableFunc(byTime, func(a, b tokenRow) int { return int(a.took - b.took) })
	at := func(p float64) tokenRow { return byTime[min(int(p*float64(len(byTime))), len(byTime)-1)] }
	var mean tokenRow
	for _, r := range t.rows {
		mean.took, mean.wait, mean.compute, mean.predict = mean.took+r.took, mean.wait+r.wait, mean.compute+r.compute, mean.predict+r.predict
	}
	n := time.Duration(len(t.rows))
	mean = tokenRow{took: mean.took / n, wait: mean.wait / n, compute: mean.compute / n, predict: mean.predict / n}
	parts := []plots.Series{{Name: "computing"}, {Name: "waiting for rows"}, {Name: "predicting"}, {Name: "other"}}
	latency := plots.Figure{Kind: plots.Stacked, Title: "Where a token's time goes", Note: note, Y: plots.Axis{Label: "time per token", Unit: "ms"}, Values: true}
	for _, x := range []struct {
		name string
		row  tokenRow
	}{{"mean", mean}, {"median token", at(.5)}, {"90th percentile", at(.9)}, {"99th percentile", at(.99)}, {"slowest", at(1)}} {
		latency.Categories = append(latency.Categories, x.name)
		r := x.row
		for i, d := range []time.Duration{r.compute, r.wait, r.predict, max(r.took-r.compute-r.wait-r.predict, 0)} {
			parts[i].Y = append(parts[i].Y, float64(max(d, 0))/1e6)
		}
	}
	latency.Series = parts
	all["latency"] = latency
	read, reuse := plots.Series{Name: "each token"}, plots.Series{Name: "each token"}
	for i, r := range t.rows {
		read.X, read.Y = append(read.X, float64(i+1)), append(read.Y, float64(r.read)/(1<<20))
		if r.needed > 0 {
			reuse.X, reuse.Y = append(reuse.X, float64(i+1)), append(reuse.Y, 1-float64(r.rows)/float64(r.needed))
		}
	}
	token := plots.Axis{Label: "token", Whole: true}
	all["reads"] = plots.Figure{Title: "Read volume over tokens", Note: note, X: token, Y: plots.Axis{Label: "read per token", Unit: "MiB"}, Series: []plots.Series{read},
		Marks: []plots.Mark{{Label: fmt.Sprintf("mean %s", clix.FormatSize(int64(s.ReadPerToken))), At: s.ReadPerToken / (1 << 20), Horizontal: true}}}
	if len(reuse.Y) > 0 {
		all["reuse"] = plots.Figure{Title: "Reuse over tokens", Note: note, X: token, Y: plots.Axis{Label: "share of rows that were resident", Max: 1}, Series: []plots.Series{reuse},
			Marks: []plots.Mark{{Label: fmt.Sprintf("mean %.3f", s.Reuse), At: s.Reuse, Horizontal: true}}}
	}
	return all
}

// runNote says under a figure what ran.
func runNote(s runStats, w *workload) string {
	model := filepath.Base(s.Bundle)
	if w.run != nil {
		model = fmt.Sprintf("synthetic weights in the shape of %s", w.run.Shape)
		if w.run.Trace != nil {
			model += fmt.Sprintf(", replayed trace of reuse %g", w.run.Trace.Reuse)
		}
	}
	mode := s.Mode
	if s.Mode == engine.ModeSparse {
		mode = fmt.Sprintf("sparse, d = %d, K_max = %d", s.Dense, s.KMax)
	}
	return fmt.Sprintf("%s; %s; %d tokens, %.2f tok/s; budget %s, peak %s; %s", model, mode, s.Tokens, s.TokPerS, clix.FormatSize(s.Budget), clix.FormatSize(s.PeakRSS), s.IO)
}

// curveFigures are rate and reads per second over the reads in flight, a line for each read size.
func curveFigures(c *measure.Curve) map[string]plots.Figure {
	way := c.Usual()
	var sizes []int
	for _, x := range c.Cells {
		if x.Way == way && !slices.Contains(sizes, x.Size) {
			sizes = append(sizes, x.Size)
		}
	}
	slices.Sort(sizes)
	depth := plots.Axis{Label: "reads in flight", Log: true}
	var ticks []plots.Tick
	rate := plots.Figure{Title: "What the drive gives: bytes", Note: c.String() + ", " + way, Y: plots.Axis{Label: "random reads", Unit: "MB/s", Log: true}}
	count := plots.Figure{Title: "What the drive gives: reads", Note: rate.Note, Y: plots.Axis{Label: "random reads per second", Log: true}}
	for _, size := range sizes {
		s, n := plots.Series{Name: clix.FormatSize(int64(size))}, plots.Series{Name: clix.FormatSize(int64(size))}
		for _, x := range c.Cells {
			if x.Way != way || x.Size != size || x.BytesPer <= 0 || x.PerS <= 0 {
				continue
			}
			s.X, s.Y = append(s.X, float64(x.Depth)), append(s.Y, x.BytesPer/1e6)
			n.X, n.Y = append(n.X, float64(x.Depth)), append(n.Y, x.PerS)
			if !slices.ContainsFunc(ticks, func(t plots.Tick) bool { return t.At == float64(x.Depth) }) {
				ticks = append(ticks, plots.Tick{At: float64(x.Depth), Label: fmt.Sprint(x.Depth)})
			}
		}
		rate.Series, count.Series = append(rate.Series, s), append(count.Series, n)
	}
	depth.Ticks = ticks
	rate.X, count.X = depth, depth
	return map[string]plots.Figure{"drive-rate": rate, "drive-reads": count}
}

// regime names what bounds a point of a calibration.
func regime(p measure.Point) string {
	if p.IOWait >= 0.5 {
		return "waits for the drive"
	}
	return "computes"
}

// calibrationFigure is tok/s over d, with what bounds it shaded, d* and stream mode marked.
func calibrationFigure(c *measure.Calibration, model string) plots.Figure {
	f := plots.Figure{Title: "Speed over the dense prefix", Note: fmt.Sprintf("%s; budget %s, K_max = %d, selector %s, %d threads", model, clix.FormatSize(c.Budget), c.KMax, c.Selector, c.Threads),
		X: plots.Axis{Label: "dense prefix d", Unit: "layers", Whole: true}, Y: plots.Axis{Label: "speed", Unit: "tok/s"}}
	s := plots.Series{Name: "sparse"}
	var ps []measure.Point
	for _, p := range c.Points {
		if p.Mode == engine.ModeSparse {
			ps = append(ps, p)
			s.X, s.Y = append(s.X, float64(p.Dense)), append(s.Y, p.TokPerS)
		} else {
			f.Marks = append(f.Marks, plots.Mark{Label: fmt.Sprintf("%s, %d layers in memory: %.2f", p.Mode, p.Dense, p.TokPerS), At: p.TokPerS, Horizontal: true})
		}
	}
	f.Series = []plots.Series{s}
	f.Marks = append(f.Marks, plots.Mark{Label: fmt.Sprintf("d* = %d", c.Best), At: float64(c.Best)})
	for i, p := range ps {
		from, to := float64(p.Dense), float64(p.Dense)
		if i > 0 {
			from = (from + float64(ps[i-1].Dense)) / 2
		}
		if i+1 < len(ps) {
			to = (to + float64(ps[i+1].Dense)) / 2
		}
		if n := len(f.Bands); n > 0 && f.Bands[n-1].Label == regime(p) {
			f.Bands[n-1].To = to
		} else {
			f.Bands = append(f.Bands, plots.Band{Label: regime(p), From: from, To: to})
		}
	}
	return f
}
