package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/eval"
)

// textRun is the perplexity of a text in one mode.
type textRun struct {
	*eval.Perplexity
	TextSHA256 string   `json:"text_sha256"`
	Stats      runStats `json:"stats"`
}

// evaluateText is eval --text.
func evaluateText(c *cli.Context) error {
	o, err := engineOptions(c)
	if err != nil {
		return err
	}
	modes, err := modesOf(c, o)
	if err != nil {
		return err
	}
	text, err := readText(c.String("text"))
	if err != nil {
		return err
	}
	var runs []textRun
	for _, mode := range modes {
		o := o
		o.Mode = mode
		r, err := perplexity(c, o, text)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	last := runs[len(runs)-1]
	if c.Bool("json") {
		if len(runs) == 1 {
			return clix.WriteJSON(stdout, last)
		}
		ratio, stderr := last.Ratio(runs[0].Perplexity)
		return clix.WriteJSON(stdout, struct {
			textRun
			Exact  textRun `json:"exact"`
			Ratio  float64 `json:"ratio"`
			StdErr float64 `json:"ratio_standard_error"`
		}{last, runs[0], ratio, stderr})
	}
	for _, r := range runs {
		selector := ""
		if r.Stats.Mode == engine.ModeSparse {
			selector = ", selector " + r.Stats.Selector
		}
		fmt.Fprintf(stdout, "%s\n%s mode%s, text sha256 %.12s\n", r, r.Stats.Mode, selector, r.TextSHA256)
	}
	if len(runs) == 2 {
		ratio, stderr := last.Ratio(runs[0].Perplexity)
		fmt.Fprintf(stdout, "sparse ÷ exact %.4f ± %.4f\n", ratio, stderr)
	}
	last.Stats.print(notes(c))
	return nil
}

// perplexity measures a text in one mode.
func perplexity(c *cli.Context, o engine.Options, text string) (r textRun, err error) {
	e, err := openBundle(c, c.String("bundle"), o)
	if err != nil {
		return r, err
	}
	defer e.Close()
	ids := e.Tokenizer.Encode(eval.Newlines.Replace(text), false)
	start, said := time.Now(), time.Now()
	window := c.Int("window")
	if !c.IsSet("window") {
		window = min(window, e.Context())
	}
	r.Perplexity, err = eval.Run(c.Context, e, ids, eval.Protocol{Window: window, MaxWindows: c.Int("windows"), BOS: c.Bool("bos")}, func(done, total int) {
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			left := time.Since(start) * time.Duration(total-done) / time.Duration(done)
			fmt.Fprintf(notes(c), "eval (%s): window %d of %d, %s left\n", e.Plan.Mode, done, total, clix.Duration(left.Round(time.Second)))
		}
	})
	if err != nil {
		return r, err
	}
	r.TextSHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	if e.Bundle.Manifest.CalibratedOn(r.TextSHA256) && e.Plan.Mode == engine.ModeSparse {
		fmt.Fprintln(c.App.ErrWriter, clix.CalibratedOnIt)
	}
	r.Stats = collect(e, c.String("bundle"))
	return r, nil
}
