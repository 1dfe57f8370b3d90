package clix

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
)

// BundleFlag names the bundle to work on.
func BundleFlag() cli.Flag {
	return &cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "bundle directory `DIR`"}
}

// JSONFlag asks for one JSON document on stdout.
func JSONFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", DisableDefaultText: true, Usage: "print the result as one JSON document"}
}

// QuietFlag leaves only warnings and errors on stderr.
func QuietFlag() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, DisableDefaultText: true, Usage: "no progress and no notes on stderr"}
}

// BundleDir is the value of BundleFlag, or of the only argument.
func BundleDir(c *cli.Context) (string, error) {
	dir, args := c.String("bundle"), c.Args().Slice()
	if dir == "" && len(args) == 1 {
		return args[0], nil
	}
	if len(args) > 0 {
		return "", Usagef("unexpected argument %q", args[0])
	}
	if dir == "" {
		return "", Usagef("no bundle given (--bundle DIR)")
	}
	return dir, nil
}

// NoArgs refuses arguments that belong to no flag.
func NoArgs(c *cli.Context) error {
	if c.Args().Present() {
		return format.Hint(Usagef("unexpected argument %q", c.Args().First()), fmt.Sprintf("files and folders are given with a flag: %s --help", c.Command.HelpName))
	}
	return nil
}

// CalibratedOnIt is what is said when a bundle is measured on its own calibration text.
const CalibratedOnIt = "warning: the bundle was calibrated on this text: on others it does less well"

// InspectCommand shows what a bundle is.
func InspectCommand(prog string) *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show what a bundle holds",
		UsageText: prog + " inspect -b DIR [--bytes] [--record LAYER:NEURON] [--json]",
		Description: "Shows the manifest's facts. --bytes shows the annotated bytes of the records file instead, also of a damaged one.\n\n" +
			"Examples:\n   " + prog + " inspect -b mistral.np\n   " + prog + " inspect -b mistral.np --bytes\n   " + prog + " inspect -b mistral.np --record 3:1417",
		Flags: []cli.Flag{BundleFlag(), JSONFlag(),
			&cli.BoolFlag{Name: "bytes", DisableDefaultText: true, Usage: "show the annotated bytes of " + bundle.MemberRows},
			&cli.StringFlag{Name: "record", Usage: "show the annotated bytes of one record, `LAYER:NEURON`"}},
		Action: inspect,
	}
}

func inspect(c *cli.Context) error {
	dir, err := BundleDir(c)
	if err != nil {
		return err
	}
	record, asBytes := c.String("record"), c.Bool("bytes")
	if c.Bool("json") && (asBytes || record != "") {
		return Usagef("--json does not go with --bytes or --record")
	}
	layer, neuron, err := parseRecord(record)
	if err != nil {
		return err
	}
	b, err := bundle.Open(dir)
	rows := filepath.Join(dir, bundle.MemberRows)
	if asBytes {
		// shown for a damaged bundle too, which then still fails
		if derr := bundle.DescribeBytes(c.App.Writer, rows); err == nil {
			err = derr
		}
	}
	if err != nil {
		return err
	}
	switch {
	case record != "":
		return bundle.DescribeRecord(c.App.Writer, rows, b.Manifest.Rows, layer, neuron)
	case asBytes:
		return nil
	case c.Bool("json"):
		return WriteJSON(c.App.Writer, b.Manifest)
	}
	return bundle.Describe(c.App.Writer, b)
}

func parseRecord(s string) (layer, neuron int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	l, n, ok := strings.Cut(s, ":")
	layer, err1 := strconv.Atoi(l)
	neuron, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, Usagef("%q is not LAYER:NEURON", s)
	}
	return layer, neuron, nil
}

// VerifyCommand reads a bundle whole and compares every checksum.
func VerifyCommand(prog string) *cli.Command {
	return &cli.Command{
		Name:        "verify",
		Usage:       "read a bundle whole and compare every checksum",
		UsageText:   prog + " verify -b DIR [--json] [--quiet]",
		Description: "Names member, layer, neuron and offset of the first damage.\n\nExample:\n   " + prog + " verify -b mistral.np",
		Flags:       []cli.Flag{BundleFlag(), JSONFlag(), QuietFlag()},
		Action: func(c *cli.Context) error {
			dir, err := BundleDir(c)
			if err != nil {
				return err
			}
			b, err := bundle.Open(dir)
			if err != nil {
				return err
			}
			var report func(done, total int64)
			if !c.Bool("quiet") {
				var end func()
				report, end = ByteProgress(c.App.ErrWriter, "verify")
				defer end()
			}
			if err := b.Verify(c.Context, report); err != nil {
				return err
			}
			var total int64
			for _, m := range b.Manifest.Members {
				total += m.Size
			}
			if c.Bool("json") {
				return WriteJSON(c.App.Writer, map[string]any{"ok": true, "members": len(b.Manifest.Members), "bytes": total})
			}
			_, err = fmt.Fprintf(c.App.Writer, "%s: good: %d members, %s\n", dir, len(b.Manifest.Members), FormatSize(total))
			return err
		},
	}
}
