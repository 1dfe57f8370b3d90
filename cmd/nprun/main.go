// Command nprun generates text from a bundle inside a fixed memory budget.
//
// Each file holds one command: its flags, its help and how it prints; the work is done in runtime/...
package main

import (
	"os"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
)

func main() { clix.Main(app()) }

// stdout takes results.
var stdout = &clix.Output{W: os.Stdout}

func app() *cli.App {
	return &cli.App{
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
}
