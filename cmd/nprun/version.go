package main

import (
	"fmt"
	goruntime "runtime"
	"strings"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "show the version, the formats it reads and the kernels it uses here",
		Flags: []cli.Flag{clix.JSONFlag()},
		Action: func(c *cli.Context) error {
			version := strings.TrimSpace(clix.Version + " " + clix.Revision())
			if c.Bool("json") {
				return clix.WriteJSON(stdout, map[string]any{"version": version, "go": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH,
					"bundle_reader": bundle.ReaderVersion, "kernels": kernels.Level(), "kernel_levels": kernels.Levels()})
			}
			fmt.Fprintf(stdout, "nprun %s, %s, %s/%s\nbundles up to reader version %d\nkernels: %s (of %v; NP_CPU lowers it)\n",
				version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH, bundle.ReaderVersion, kernels.Level(), kernels.Levels())
			return nil
		},
	}
}
