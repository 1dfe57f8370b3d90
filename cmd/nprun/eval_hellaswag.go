package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/eval"
)

// hellaSwagFlags are those of eval --hellaswag.
func hellaSwagFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "hellaswag", Usage: "`FILE` of HellaSwag items, one JSON object a line, to be answered"},
		&cli.StringFlag{Name: "shots", Usage: "`FILE` of other items, which the shots are taken from in order"},
		&cli.IntFlag{Name: "n", Aliases: []string{"num-shots"}, Usage: "put `N` shots in front of every item"},
		&cli.IntFlag{Name: "items", Usage: "answer the first `N` items; 0 is all"},
		&cli.BoolFlag{Name: "exact", DisableDefaultText: true, Usage: "in sparse mode: measure in stream mode too, and compare"},
	}
}

// itemsRun is HellaSwag in one mode.
type itemsRun struct {
	Mode     string `json:"mode"`
	Selector string `json:"selector,omitempty"`
	*eval.HellaSwag
	Cut   int      `json:"cut"` // endings whose prompt lost its beginning to the context
	Stats runStats `json:"stats"`
}

// agreement is how often two modes answer alike.
type agreement struct {
	Raw        float64 `json:"acc"`
	RawStdErr  float64 `json:"acc_standard_error"`
	Norm       float64 `json:"acc_norm"`
	NormStdErr float64 `json:"acc_norm_standard_error"`
}

// evaluateHellaSwag is eval --hellaswag.
func evaluateHellaSwag(c *cli.Context) error {
	n, most := c.Int("n"), c.Int("items")
	switch {
	case n < 0 || most < 0:
		return clix.Usagef("-n %d --items %d: want numbers from 0", n, most)
	case n > 0 && c.String("shots") == "":
		return format.Hint(clix.Usagef("-n %d needs --shots FILE", n), "take the shots from items that are not answered, as those of the training set")
	case n == 0 && c.String("shots") != "":
		return clix.Usagef("--shots needs -n N: how many of them")
	}
	o, err := engineOptions(c)
	if err != nil {
		return err
	}
	modes, err := modesOf(c, o)
	if err != nil {
		return err
	}
	items, err := eval.LoadHellaSwag(c.String("hellaswag"))
	if err != nil {
		return err
	}
	hash, err := fileHash(c.String("hellaswag"))
	if err != nil {
		return err
	}
	if most > 0 && most < len(items) {
		items = items[:most]
	}
	var shots []eval.Item
	shotsHash := ""
	if n > 0 {
		if shots, err = eval.LoadHellaSwag(c.String("shots")); err != nil {
			return err
		}
		if shotsHash, err = fileHash(c.String("shots")); err != nil {
			return err
		}
		if n > len(shots) {
			return format.Inputf("%s has %d items, fewer than -n %d", c.String("shots"), len(shots), n)
		}
		shots = shots[:n]
	}
	var runs []itemsRun
	for _, mode := range modes {
		o := o
		o.Mode = mode
		r, err := hellaSwagRun(c, o, items, shots)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	var agree *agreement
	if len(runs) == 2 {
		agree = &agreement{}
		if agree.Raw, agree.RawStdErr, agree.Norm, agree.NormStdErr, err = eval.Agreement(runs[0].HellaSwag, runs[1].HellaSwag); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return clix.WriteJSON(stdout, struct {
			Protocol  string     `json:"protocol"`
			Items     string     `json:"items_sha256"`
			Shots     string     `json:"shots_sha256,omitempty"`
			Runs      []itemsRun `json:"runs"`
			Agreement *agreement `json:"agreement,omitempty"`
		}{itemsProtocol, hash, shotsHash, runs, agree})
	}
	fmt.Fprintf(stdout, "HellaSwag, %s (sha256 %.12s), %s", clix.Count(len(items), "item"), hash, clix.Count(n, "shot"))
	if n > 0 {
		fmt.Fprintf(stdout, " (the first of sha256 %.12s)", shotsHash)
	}
	fmt.Fprintf(stdout, "\n%s\n", itemsProtocol)
	for _, r := range runs {
		name := r.Mode
		if r.Selector != "" {
			name += ", " + r.Selector
		}
		fmt.Fprintf(stdout, "%-20s acc %.4f ± %.4f   acc_norm %.4f ± %.4f\n", name, r.Acc, r.AccStdErr, r.AccNorm, r.AccNormStdErr)
		if r.Cut > 0 {
			fmt.Fprintf(stdout, "%-20s %s lost the beginning of the prompt to a context of %d tokens\n", "", clix.Count(r.Cut, "ending"), r.Stats.Context)
		}
	}
	if agree != nil {
		fmt.Fprintf(stdout, "%-20s acc %.4f ± %.4f   acc_norm %.4f ± %.4f\n", "answered alike", agree.Raw, agree.RawStdErr, agree.Norm, agree.NormStdErr)
	}
	runs[len(runs)-1].Stats.print(notes(c))
	return nil
}

// modesOf are the modes to measure in: the one asked for, behind the exact one with --exact.
func modesOf(c *cli.Context, o engine.Options) ([]string, error) {
	switch {
	case !c.Bool("exact"):
		return []string{o.Mode}, nil
	case o.Mode != engine.ModeSparse:
		return nil, clix.Usagef("--exact compares with --mode sparse")
	}
	return []string{engine.ModeStream, o.Mode}, nil
}

const itemsProtocol = "texts as lm-evaluation-harness makes them, no BOS; acc: largest sum of log-probabilities, acc_norm: largest sum per character; ± standard error"

// hellaSwagRun answers the items in one mode.
func hellaSwagRun(c *cli.Context, o engine.Options, items, shots []eval.Item) (r itemsRun, err error) {
	e, err := openBundle(c, c.String("bundle"), o)
	if err != nil {
		return r, err
	}
	defer e.Close()
	encode := func(s string) []int32 { return e.Tokenizer.Encode(s, false) }
	for _, item := range items {
		for _, ch := range eval.Choices(encode, shots, item, 0) {
			if len(ch.IDs) > e.Context() {
				r.Cut++
			}
		}
	}
	start, said := time.Now(), time.Now()
	r.HellaSwag, err = eval.RunHellaSwag(c.Context, encode, items, shots, e.Context(), eval.EngineScorer(e), func(done, total int) {
		if time.Since(said) > 2*time.Second && done < total {
			said = time.Now()
			left := time.Since(start) * time.Duration(total-done) / time.Duration(done)
			fmt.Fprintf(notes(c), "eval (%s): item %d of %d, %s left\n", e.Plan.Mode, done, total, clix.Duration(left.Round(time.Second)))
		}
	})
	if err != nil {
		return r, err
	}
	r.Mode, r.Stats = e.Plan.Mode, collect(e, c.String("bundle"))
	if r.Mode == engine.ModeSparse {
		r.Selector = e.SelectorName()
	}
	return r, nil
}

// fileHash names a file by its content.
func fileHash(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", format.Inputf("%w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), nil
}
