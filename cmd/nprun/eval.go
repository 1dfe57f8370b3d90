package main

import (
	"fmt"
	"math"
	"os"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/eval"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "measure perplexity of a text or HellaSwag, or print the log-probability of every token",
		Description: "Perplexity: the text, its line ends made \\n, is encoded once without special tokens and cut into windows without overlap; every token\n" +
			"that has another before it in its window is scored. In sparse mode the first token of a window runs through whole\n" +
			"layers and each later one reads its rows from disk, as in generation.\n\n" +
			"HellaSwag: an item's endings are scored behind its context and the shots, tokenized together; acc and acc_norm are those of\n" +
			"lm-evaluation-harness.\n\n--exact measures in stream mode too, which computes every neuron, and compares.\n\nExamples:\n" +
			"  nprun eval -b BUNDLE --hellaswag hellaswag_val.jsonl --shots hellaswag_train.jsonl -n 10 --items 200 --mode sparse --exact\n" +
			"  nprun eval -b BUNDLE --text wiki.test.raw --window 512 --windows 32 --mode sparse --exact\n  nprun eval -b BUNDLE --mode sparse --ids 1,5,7 --json",
		Flags: append(append(engineFlags(), hellaSwagFlags()...),
			&cli.StringFlag{Name: "text", Usage: "`FILE` whose perplexity is measured; - reads stdin"},
			&cli.IntFlag{Name: "window", Value: 512, Usage: "`N` tokens of a window, at most the context"},
			&cli.IntFlag{Name: "windows", Usage: "stop after `N` windows; 0 is all"},
			&cli.BoolFlag{Name: "bos", Usage: "begin every window with the BOS token"},
			&cli.StringFlag{Name: "ids", Usage: "token `IDS`, separated by commas, to print log-probabilities of"},
			&cli.StringFlag{Name: "ids-file", Usage: "`FILE` of token ids"}),
		Action: evaluate,
	}
}

func evaluate(c *cli.Context) error {
	given := 0
	for _, f := range []string{"text", "ids", "ids-file", "hellaswag"} {
		if c.IsSet(f) {
			given++
		}
	}
	if given != 1 {
		return clix.Usagef("give one of --text, --hellaswag, --ids and --ids-file")
	}
	if c.IsSet("hellaswag") {
		for _, f := range []string{"window", "windows", "bos"} {
			if c.IsSet(f) {
				return clix.Usagef("--%s goes with --text", f)
			}
		}
		return evaluateHellaSwag(c)
	}
	for _, f := range []string{"shots", "n", "items"} {
		if c.IsSet(f) {
			return clix.Usagef("--%s goes with --hellaswag", f)
		}
	}
	if c.Int("window") < 2 || c.Int("windows") < 0 {
		return clix.Usagef("--window %d --windows %d: want at least 2 and 0", c.Int("window"), c.Int("windows"))
	}
	for _, f := range []string{"window", "windows", "bos", "exact"} {
		if c.IsSet(f) && !c.IsSet("text") {
			return clix.Usagef("--%s goes with --text", f)
		}
	}
	if c.IsSet("text") {
		return evaluateText(c)
	}
	return evaluateIDs(c)
}

// evaluateIDs is eval --ids and --ids-file.
func evaluateIDs(c *cli.Context) error {
	e, err := open(c)
	if err != nil {
		return err
	}
	defer e.Close()
	s := c.String("ids")
	if f := c.String("ids-file"); f != "" {
		b, err := os.ReadFile(f)
		if err != nil {
			return format.Inputf("--ids-file: %w", err)
		}
		s = string(b)
	}
	ids, err := parseIDs(s, e.Config.Vocab)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return format.Inputf("no token ids given")
	}
	lp, err := eval.LogProbs(c.Context, e, ids)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		out := make([]*float64, len(lp))
		for i := range lp {
			if !math.IsNaN(lp[i]) {
				out[i] = &lp[i]
			}
		}
		return clix.WriteJSON(stdout, map[string]any{"ids": ids, "logprobs": out, "mode": e.Plan.Mode})
	}
	for i, v := range lp {
		if i == 0 {
			fmt.Fprintf(stdout, "%d\t-\n", ids[i])
		} else {
			fmt.Fprintf(stdout, "%d\t%.6f\n", ids[i], v)
		}
	}
	return nil
}
