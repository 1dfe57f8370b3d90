package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "show what each mode would keep in memory and read, without loading anything",
		Description: "Examples:\n  nprun plan -b BUNDLE\n  nprun plan -b BUNDLE --memory 6GiB --context 4096\n" +
			"  nprun plan -b BUNDLE --mode sparse --dense-layers 12 --json",
		Flags:  engineFlags(),
		Action: plan,
	}
}

func plan(c *cli.Context) error {
	o, err := engineOptions(c)
	if err != nil {
		return err
	}
	b, err := bundle.Open(c.String("bundle")) // engineOptions has seen that there is one
	if err != nil {
		return err
	}
	calibrated := useCalibration(&o, b, c.IsSet("gap"))
	all, chosen, err := engine.Plans(b, o)
	if err != nil && all == nil {
		return err
	}
	if c.Bool("json") {
		if jerr := clix.WriteJSON(stdout, map[string]any{"plans": all, "chosen": chosen}); jerr != nil {
			return jerr
		}
		return err
	}
	if calibrated != "" {
		fmt.Fprintf(notes(c), "note: %s\n", calibrated)
	}
	reads := newReadTimes(b)
	for _, p := range all {
		verdict := "fits"
		if p.Total > p.Budget {
			verdict = "does not fit"
		}
		if chosen != nil && p.Mode == chosen.Mode {
			verdict += ", chosen"
		}
		fmt.Fprintf(stdout, "%s (%s): %s in memory", p.Mode, verdict, p.Held(b.Manifest.Model.Layers, b.Manifest.Rows.Neurons))
		switch p.Mode {
		case engine.ModeSparse:
			fmt.Fprintf(stdout, ", K_max %d of %d neurons in the others; a token reads at most %s, less what is reused%s", p.KMax, b.Manifest.Rows.Neurons, clix.FormatSize(p.ReadsPerToken), reads.sparse(p))
		case engine.ModeStream:
			fmt.Fprintf(stdout, "; every token reads %s%s", clix.FormatSize(p.ReadsPerToken), reads.stream(p))
		}
		fmt.Fprintf(stdout, "\n%s", p.Arithmetic())
		if p.Mode == engine.ModeSparse {
			fmt.Fprint(stdout, tradeoff(b, p))
		}
		fmt.Fprintln(stdout)
	}
	return err
}

// tradeoff tells what is known of the knob --rows-per-token: what was measured of the bundle when it was made, and on this
// device by calibrate.
func tradeoff(b *bundle.Bundle, p *engine.Plan) string {
	var out strings.Builder
	selector := p.Selector
	for _, q := range b.Manifest.Sparse.Quality {
		if q.Selector == selector && p.KMax == b.Manifest.Sparse.KMax {
			fmt.Fprintf(&out, "   quality  %s\n", q)
		}
	}
	cache, _ := cacheDir()
	if c, ok := measure.KeptCalibration(b, cache); ok && c.KMax == p.KMax && c.Selector == selector {
		for _, l := range c.Limits {
			limit := "no limit to what is read"
			if l.Rows > 0 {
				limit = fmt.Sprintf("--rows-per-token %d", l.Rows)
			}
			fmt.Fprintf(&out, "     speed  %.2f tok/s with d = %d and %s, %s a token\n", l.TokPerS, c.Best, limit, clix.FormatSize(int64(l.Read)))
		}
	}
	return out.String()
}
