package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/prep/exporter"
)

func exportCommand() *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "write a bundle's weights as a GGUF file",
		UsageText: "npprep export -b DIR --out FILE",
		Description: "Writes the float16 weights bit for bit, for llama.cpp beside nprun. The tokenizer is not written: the file takes and gives token ids.\n" +
			"A file that holds these weights already is left alone.\n\nExample:\n   npprep export -b mistral.np --out mistral.gguf",
		Flags: []cli.Flag{
			clix.BundleFlag(),
			&cli.StringFlag{Name: "out", Usage: "write the GGUF `FILE`"},
			clix.JSONFlag(), clix.QuietFlag(),
		},
		Action: func(c *cli.Context) error {
			dir, err := clix.BundleDir(c)
			if err != nil {
				return err
			}
			if c.String("out") == "" {
				return clix.Usagef("export needs --out FILE")
			}
			b, err := bundle.Open(dir)
			if err != nil {
				return err
			}
			var o exporter.Options
			if !c.Bool("quiet") {
				report, end := clix.ByteProgress(c.App.ErrWriter, "export")
				defer end()
				o.Progress = report
			}
			r, err := exporter.Export(c.Context, b, c.String("out"), o)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return clix.WriteJSON(c.App.Writer, r)
			}
			state := "written"
			if !r.Written {
				state = "up to date"
			}
			_, err = fmt.Fprintf(c.App.Writer, "export     %s: %s, %d tensors, %s, architecture %s\n", r.Path, state, r.Tensors, clix.FormatSize(r.Bytes), r.Architecture)
			return err
		},
	}
}
