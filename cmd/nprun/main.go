// Command nprun generates text from a bundle inside a fixed memory budget.
//
// Each file holds one command: its flags, its help and how it prints; the work is done in runtime/...
package main

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
)

func main() { clix.Main(app()) }

// output is stdout that remembers that it could not be written, so that a result that got lost is a failed run.
type output struct {
	w   io.Writer
	err error
}

var stdout = &output{w: os.Stdout}

func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	if err != nil {
		o.err = format.IOf("writing the result: %w", err)
	}
	return n, o.err
}

func app() *cli.App {
	a := &cli.App{
		Name:  "nprun",
		Usage: "run language models that are bigger than memory",
		Description: "nprun reads a bundle made by npprep. It keeps attention and the first MLP layers in memory and reads only the\n" +
			"neurons of the later layers that a token needs and that are not there yet.\n\n" +
			"Exit codes: 0 done, 2 usage, 3 bad input, 4 does not fit, 5 I/O, 130 interrupted.",
		Commands: []*cli.Command{
			generateCommand(), chatCommand(), tokenizeCommand(), serveCommand(), benchCommand(), calibrateCommand(), planCommand(), doctorCommand(),
			evalCommand(), clix.InspectCommand("nprun"), clix.VerifyCommand("nprun"), versionCommand(), clix.CompletionCommand("nprun"),
		},
		Writer: stdout,
	}
	for _, c := range a.Commands {
		action := c.Action
		c.Action = func(c *cli.Context) error {
			if err := action(c); err != nil {
				return err
			}
			return stdout.err
		}
	}
	return a
}
