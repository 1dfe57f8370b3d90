package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/prep/importer"
)

func importCommand() *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "turn a GGUF file into a checkpoint",
		UsageText: "npprep import --gguf FILE --out DIR",
		Description: "Writes config.json, tokenizer.json, the chat template and float16 safetensors. Reads F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K.\n\n" +
			"Example:\n   npprep import --gguf mistral-7b.Q8_0.gguf --out mistral-7b",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "gguf", Usage: "read the GGUF `FILE`"},
			&cli.StringFlag{Name: "out", Usage: "write the checkpoint as directory `DIR`"},
			clix.JSONFlag(), clix.QuietFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := clix.NoArgs(c); err != nil {
				return err
			}
			gguf, out := c.String("gguf"), c.String("out")
			if gguf == "" || out == "" {
				return clix.Usagef("import needs --gguf FILE and --out DIR")
			}
			var o importer.Options
			if !c.Bool("quiet") {
				report, end := clix.ByteProgress(c.App.ErrWriter, "import")
				defer end()
				o.Progress = report
			}
			r, err := importer.Import(c.Context, gguf, out, o)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return clix.WriteJSON(c.App.Writer, r)
			}
			_, err = fmt.Fprintf(c.App.Writer, "import     %s: %d tensors, %s, vocabulary %d\n           %d values converted, %d rounded, %d became zero\n",
				out, r.Tensors, clix.FormatSize(r.BytesWritten), r.Vocab, r.Values, r.Rounded, r.Underflow)
			return err
		},
	}
}
