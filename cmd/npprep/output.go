package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/prep/stage"
)

// printReports is the result of a run on stdout.
func printReports(c *cli.Context, rs []stage.Report) error {
	if c.Bool("json") {
		return clix.WriteJSON(c.App.Writer, map[string]any{"stages": rs})
	}
	for _, r := range rs {
		if err := printReport(c.App.Writer, r); err != nil {
			return err
		}
	}
	return nil
}

func printReport(w io.Writer, r stage.Report) error {
	took := time.Duration(r.Seconds * float64(time.Second))
	peak := "peak memory " + clix.FormatSize(r.PeakRSS)
	if r.PeakWhole {
		peak += " (of the whole process so far)"
	}
	head := fmt.Sprintf("done in %s, %s", clix.Duration(took), peak)
	if r.Skipped {
		head = fmt.Sprintf("up to date (took %s, %s)", clix.Duration(took), peak)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %s\n", r.Stage, head)
	var keys []string
	for k := range r.Values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(&b, "           %-22s %s\n", k, show(k, r.Values[k]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// show writes a value; those of a skipped stage come back from JSON, so numbers are float64.
func show(key string, v any) string {
	n, number := v.(float64)
	if number && n == float64(int64(n)) {
		v = int64(n)
	}
	if strings.HasSuffix(key, "bytes") {
		switch x := v.(type) {
		case int64:
			return clix.FormatSize(x)
		case int:
			return clix.FormatSize(int64(x))
		}
	}
	if x, ok := v.(float64); ok {
		return fmt.Sprintf("%.6g", x)
	}
	return fmt.Sprint(v)
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", UsageText: "npprep version",
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(c.App.Writer, strings.TrimSpace("npprep "+clix.Version+" "+clix.Revision()))
			return err
		},
	}
}
