package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/ladder"
	"neuroprefetcher/prep/stage"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name: "eval", Usage: "measure quality: the ladder from dense to a fixed set, and what each rung reads",
		UsageText: "npprep eval -b DIR [-b DIR ...] --text FILE [--hellaswag FILE]",
		Description: "Measures the exact model, the best possible choice of K_max neurons, and each selector of the bundle with perfect and\n" +
			"with predicted choice, on the bundle's weights, as nprun eval does in sparse mode. Give several bundles of one model\n" +
			"to measure each K_max with the bundle made for it. What is finished is kept in --work and not measured again.\n\nExamples:\n" +
			"   npprep eval -b model.np --text wiki.test.raw --windows 32\n" +
			"   npprep eval -b model-0.31 -b model-0.50 --text wiki.test.raw --dense-layers 18 --hellaswag items.jsonl --shots train.jsonl -n 0,10",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "bundle `DIR`; may be given again for other K_max of the same model"},
			&cli.StringFlag{Name: "text", Usage: "`FILE` whose perplexity is measured"},
			&cli.IntFlag{Name: "windows", Value: 8, Usage: "measure `N` windows of the text; 0 is all"},
			&cli.IntFlag{Name: "context", Aliases: []string{"window"}, DefaultText: "512, at most the model's", Usage: "`TOKENS` of a window"},
			&cli.BoolFlag{Name: "bos", DisableDefaultText: true, Usage: "begin every window with the BOS token"},
			&cli.IntSliceFlag{Name: "dense-layers", DefaultText: "the first bundle's", Usage: "dense prefixes `N,...`"},
			&cli.IntSliceFlag{Name: "k-max", DefaultText: "the bundles'", Usage: "neurons of a sparse layer, `N,...`"},
			&cli.Float64SliceFlag{Name: "sparsity", Usage: "the same as shares that are left out, `S,...`"},
			&cli.StringSliceFlag{Name: "selector", Value: cli.NewStringSlice("all"), Usage: "selectors `NAME,...` of the bundle, best (the most important neurons of each token), or all"},
			&cli.BoolFlag{Name: "perfect", Value: true, Usage: "measure perfect choice too"},
			&cli.BoolFlag{Name: "means", Value: true, Usage: "let the bundle's means stand in for neurons that are left out, as nprun does"},
			&cli.StringSliceFlag{Name: "read-budget", Value: cli.NewStringSlice("0.17"), Usage: "besides no limit, read at most these `AMOUNTS` per token: shares of K_max, or sizes such as 8MiB; 0 for none"},
			&cli.Float64SliceFlag{Name: "margin", Usage: "how much better a neuron must score to replace a resident one, `X,...`", DefaultText: "0"},
			&cli.BoolFlag{Name: "device-arithmetic", DisableDefaultText: true, Usage: "compute token by token as nprun does: slower, the same bits"},
			&cli.StringFlag{Name: "hellaswag", Usage: "`FILE` of HellaSwag items, JSON lines"},
			&cli.StringFlag{Name: "shots", Usage: "`FILE` of items to take examples from, in order"},
			&cli.IntSliceFlag{Name: "n", DefaultText: "0", Usage: "numbers of examples, `N,...`"},
			&cli.IntFlag{Name: "items", Usage: "use `N` items; 0 is all"},
			&cli.StringFlag{Name: "work", Usage: "keep what is finished in `DIR`", DefaultText: "the first bundle's name with .eval behind it"},
			&cli.IntFlag{Name: "threads", DefaultText: "all cores", Usage: "`N` threads"},
			&cli.StringFlag{Name: "memory", DefaultText: "what the machine and the container leave", Usage: "`SIZE` that the process may use, such as 8GiB"},
			&cli.StringFlag{Name: "plots", Usage: "draw figures into `DIR`, as PNG and SVG"},
			clix.JSONFlag(),
			clix.QuietFlag(),
		},
		Action: evaluate,
	}
}

func evaluate(c *cli.Context) error {
	o, err := ladderOptions(c)
	if err != nil {
		return err
	}
	e := &stage.Env{Work: c.String("work"), Threads: c.Int("threads"), Quiet: c.Bool("quiet"), JSON: c.Bool("json"), Log: c.App.ErrWriter}
	if e.Work == "" {
		e.Work = filepath.Clean(o.Bundles[0]) + ".eval"
	}
	switch {
	case e.Threads < 0 || e.Threads > maxThreads:
		return clix.Usagef("--threads %d: want 1 to %d", e.Threads, maxThreads)
	case e.Threads > 0:
		runtime.GOMAXPROCS(e.Threads)
	}
	if err := memory(c.String("memory"), e); err != nil {
		return err
	}
	e.Pool = kernels.NewPool(e.Threads)
	defer e.Pool.Close()
	r, err := ladder.Run(c.Context, e, o)
	if err != nil {
		if c.Context.Err() != nil {
			return format.Hint(c.Context.Err(), "the next run goes on from here")
		}
		return err
	}
	var drawn error // told when the result is out: it is not lost with a figure
	if dir := c.String("plots"); dir != "" {
		var files []string
		if files, drawn = drawLadder(dir, r); drawn == nil {
			e.Note("%d figures in %s", len(files)/2, dir)
		}
	}
	if c.Bool("json") {
		return errors.Join(clix.WriteJSON(c.App.Writer, r), drawn)
	}
	var text bytes.Buffer
	printLadder(&text, r)
	_, err = c.App.Writer.Write(text.Bytes())
	return errors.Join(err, drawn)
}

func ladderOptions(c *cli.Context) (ladder.Options, error) {
	o := ladder.Options{
		Bundles: c.StringSlice("bundle"), Dense: c.IntSlice("dense-layers"), KMax: c.IntSlice("k-max"), Sparsity: c.Float64Slice("sparsity"),
		Selectors: c.StringSlice("selector"), Perfect: c.Bool("perfect"), Device: c.Bool("device-arithmetic"),
		Text: c.String("text"), Window: c.Int("context"), Windows: c.Int("windows"), BOS: c.Bool("bos"),
		HellaSwag: c.String("hellaswag"), Shots: c.String("shots"), NShots: c.IntSlice("n"), Items: c.Int("items"),
	}
	if err := clix.NoArgs(c); err != nil {
		return o, err
	}
	if !c.Bool("means") {
		o.Means = ladder.NoMeans
	}
	switch {
	case len(o.Bundles) == 0:
		return o, clix.Usagef("no bundle given (--bundle DIR)")
	case o.Text == "" && o.HellaSwag == "":
		return o, clix.Usagef("nothing to measure on (--text FILE, --hellaswag FILE)")
	case o.HellaSwag == "" && (o.Shots != "" || len(o.NShots) > 0 || o.Items != 0):
		return o, clix.Usagef("--shots, -n and --items go with --hellaswag")
	case o.Windows < 0 || o.Items < 0 || c.IsSet("context") && o.Window < 2:
		return o, clix.Usagef("--windows %d --context %d --items %d: want at least 0, 2 and 0", o.Windows, o.Window, o.Items)
	}
	for _, s := range c.StringSlice("read-budget") {
		b := ladder.Budget{}
		share, err := strconv.ParseFloat(s, 64)
		if err == nil && share >= 0 && share <= 1 {
			b.Share = share
		} else if b.Bytes, err = clix.ParseSize(s); err != nil || b.Bytes < 1024 {
			return o, clix.Usagef("--read-budget %s: want a share from 0 to 1, or a size such as 8MiB", s)
		}
		if b != (ladder.Budget{}) {
			o.Budgets = append(o.Budgets, b)
		}
	}
	for _, s := range o.Sparsity {
		if !(s >= 0 && s < 1) {
			return o, clix.Usagef("--sparsity %v: must be at least 0 and below 1", s)
		}
	}
	for _, n := range o.NShots {
		if n < 0 {
			return o, clix.Usagef("-n %d: want numbers from 0", n)
		}
	}
	for _, m := range c.Float64Slice("margin") {
		if !(m >= 0 && m <= math.MaxFloat32) {
			return o, clix.Usagef("--margin %v: want finite numbers from 0", m)
		}
		o.Margins = append(o.Margins, float32(m))
	}
	return o, nil
}

// printLadder is the result as text: the protocol, and a line for each rung.
func printLadder(w io.Writer, r *ladder.Report) {
	p := r.Protocol
	if p.Scored > 0 {
		bos := "no BOS"
		if p.BOS {
			bos = "BOS in each window"
		}
		fmt.Fprintf(w, "perplexity: %d windows of %d tokens without overlap, %s, per token, %d of %d tokens scored, text sha256 %.12s\n",
			p.Windows, p.Window, bos, p.Scored, p.Tokens, p.TextSHA256)
		fmt.Fprintln(w, "recall: share of importance computed; reuse, rows and bytes are of the layers behind the dense prefix, per token")
	}
	for _, h := range r.Rungs[0].HellaSwag {
		fmt.Fprintf(w, "HellaSwag: %d items, %d shots; acc by the sum of log-probabilities, norm by the sum per character; same: items answered as the dense model does\n", h.Items, h.Shots)
	}
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	head := table.Row{"selector", "choice", "d", "K_max", "cap"}
	if p.Scored > 0 {
		head = append(head, "ppl", "±", "ratio", "±", "agree", "recall", "reuse", "rows", "read")
	}
	for _, h := range r.Rungs[0].HellaSwag {
		head = append(head, fmt.Sprintf("acc %d", h.Shots), "norm", "±", "same", "same norm")
	}
	t.AppendHeader(head)
	var cols []table.ColumnConfig
	for i := range head {
		if i > 1 {
			cols = append(cols, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(cols)
	last := ladder.Rung{}
	for _, x := range r.Rungs {
		if x.Dense != last.Dense || x.KMax != last.KMax {
			t.AppendSeparator()
		}
		last = x.Rung
		t.AppendRow(ladderRow(x, p))
	}
	t.Render()
}

func ladderRow(x ladder.Result, p ladder.Protocol) table.Row {
	row := table.Row{x.Selector, x.Choice, "", "", ""}
	dense := x.Selector == ladder.DenseName
	if !dense {
		row[2], row[3] = x.Dense, fmt.Sprintf("%d (%.0f%%)", x.KMax, 100*x.Sparsity)
		if x.ReadCap > 0 {
			row[4] = fmt.Sprint(x.ReadCap)
		}
		if x.Margin > 0 {
			row[1] = fmt.Sprintf("%s, margin %g", x.Choice, x.Margin)
		}
	}
	if p.Scored > 0 {
		row = append(row, fmt.Sprintf("%.4f", x.Perplexity), fmt.Sprintf("%.3f", x.StdErr), fmt.Sprintf("%.4f", x.Ratio))
		if dense {
			row = append(row, "", "", "", "", "", "")
		} else {
			row = append(row, fmt.Sprintf("%.4f", x.RatioStdErr), fmt.Sprintf("%.3f", x.Agreement), fmt.Sprintf("%.3f", x.Recall),
				fmt.Sprintf("%.3f", x.Reuse), fmt.Sprintf("%.1f", x.RowsPerToken), clix.FormatSize(int64(x.BytesPerToken)))
		}
	}
	for _, h := range x.HellaSwag {
		row = append(row, fmt.Sprintf("%.4f", h.Acc), fmt.Sprintf("%.4f", h.AccNorm), fmt.Sprintf("%.4f", h.AccNormStdErr))
		if dense {
			row = append(row, "", "")
		} else {
			row = append(row, fmt.Sprintf("%.3f", h.Same), fmt.Sprintf("%.3f", h.SameNorm))
		}
	}
	return row
}
