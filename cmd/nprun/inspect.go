package main

import (
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
)

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:        "inspect",
		Usage:       "show what a bundle holds",
		Description: "Examples:\n  nprun inspect -b BUNDLE\n  nprun inspect -b BUNDLE --bytes\n  nprun inspect -b BUNDLE --json",
		Flags: []cli.Flag{bundleFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "bytes", Usage: "annotate the bytes of the header page and of a record"}},
		Action: func(c *cli.Context) error {
			b, err := bundle.Open(c.String("bundle"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(b.Manifest)
			}
			if c.Bool("bytes") {
				return bundle.DescribeBytes(os.Stdout, b.Path(bundle.MemberRows))
			}
			return bundle.Describe(os.Stdout, b)
		},
	}
}

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:        "verify",
		Usage:       "check every byte of a bundle against its checksums",
		Description: "Damage is named: member, layer, neuron, offset.\n\nExample:\n  nprun verify -b BUNDLE",
		Flags:       []cli.Flag{bundleFlag(), jsonFlag(), &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress"}},
		Action: func(c *cli.Context) error {
			b, err := bundle.Open(c.String("bundle"))
			if err != nil {
				return err
			}
			start, said := time.Now(), time.Now()
			var size int64
			err = b.Verify(c.Context, func(done, total int64) {
				size = total
				if !c.Bool("quiet") && time.Since(said) > 2*time.Second {
					said = time.Now()
					rate := float64(done) / time.Since(start).Seconds()
					left := time.Duration(float64(total-done) / rate * float64(time.Second))
					fmt.Fprintf(os.Stderr, "verify: %s of %s, %s/s, %s left\n", clix.FormatSize(done), clix.FormatSize(total), clix.FormatSize(int64(rate)), clix.Duration(left.Round(time.Second)))
				}
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(map[string]any{"ok": true, "bytes": size, "seconds": time.Since(start).Seconds()})
			}
			fmt.Printf("%s: all %s are as written (%s)\n", c.String("bundle"), clix.FormatSize(size), clix.Duration(time.Since(start)))
			return nil
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "show the version, the formats it reads and the kernels it uses here",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			version := "(devel)"
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
				version = info.Main.Version
			}
			if c.Bool("json") {
				return printJSON(map[string]any{"version": version, "go": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH,
					"bundle_reader": bundle.ReaderVersion, "kernels": kernels.Level(), "kernel_levels": kernels.Levels()})
			}
			fmt.Printf("nprun %s, %s, %s/%s\nbundles up to reader version %d\nkernels: %s (of %v; NP_CPU lowers it)\n",
				version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH, bundle.ReaderVersion, kernels.Level(), kernels.Levels())
			return nil
		},
	}
}
