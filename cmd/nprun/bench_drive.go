package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
	"neuroprefetcher/runtime/storage"
)

// driveFlags are those of bench --drive.
func driveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "drive", Usage: "measure the drive under the bundle or --file first, over read size, reads in flight and registration, and keep it for plans"},
		&cli.StringFlag{Name: "file", Usage: "with --drive: measure the drive under this `FILE` (64 MiB or more, it is only read) and nothing else"},
		&cli.IntFlag{Name: "spell", Value: 150, Usage: "with --drive: `MS` per point"},
	}
}

// ioStats tell what the drive did for the measured tokens.
type ioStats struct {
	Busy    float64 `json:"io_busy_s"`        // with reads in flight
	Hidden  float64 `json:"io_hidden"`        // share of that time which no token waited for
	Rate    float64 `json:"read_bytes_per_s"` // while reads were in flight
	Against float64 `json:"drive_bytes_per_s,omitempty"`
	Share   float64 `json:"read_rate_of_drive,omitempty"` // Rate ÷ Against
}

// newIOStats compares with the drive's curve at the mean length of a read, if there is one.
func newIOStats(s engine.Stats, info storage.Info, curve *measure.Curve) ioStats {
	io := ioStats{Busy: s.StepIO.Busy.Seconds()}
	if io.Busy <= 0 || s.StepIO.Reads == 0 {
		return io
	}
	io.Hidden = max(0, 1-s.IOWait.Seconds()/io.Busy)
	io.Rate = float64(s.StepIO.Bytes) / io.Busy
	if curve != nil {
		if rate, ok := curve.At(curve.Usual(), int(s.StepIO.Bytes/s.StepIO.Reads)); ok {
			io.Against, io.Share = rate, io.Rate/rate
		}
	}
	return io
}

func (s ioStats) String() string {
	line := fmt.Sprintf("%s/s while reads were in flight; %.0f%% of that time was hidden behind computing", clix.FormatSize(int64(s.Rate)), 100*s.Hidden)
	if s.Against > 0 {
		line += fmt.Sprintf("; %.2f of the drive's %s/s for reads of that size", s.Share, clix.FormatSize(int64(s.Against)))
	}
	return line
}

// benchFile is bench --drive --file.
func benchFile(c *cli.Context) error {
	if !c.Bool("drive") {
		return clix.Usagef("--file needs --drive")
	}
	for _, f := range []string{"bundle", "synthetic"} {
		if c.String(f) != "" {
			return clix.Usagef("--file and --%s exclude each other", f)
		}
	}
	if c.Args().Present() {
		return clix.Usagef("unexpected argument %q", c.Args().First())
	}
	curve, err := measureDrive(c, c.String("file"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return clix.WriteJSON(stdout, struct {
			Drive *measure.Curve `json:"drive"`
		}{curve})
	}
	renderCurve(curve)
	return nil
}

// measureDrive measures the drive under a file and keeps the result.
func measureDrive(c *cli.Context, path string) (*measure.Curve, error) {
	ms := c.Int("spell")
	if ms < 1 || ms > 60_000 {
		return nil, clix.Usagef("--spell %d: want 1 to 60000 milliseconds", ms)
	}
	o := measure.CurveOptions{Spell: time.Duration(ms) * time.Millisecond, Storage: storage.Options{Backend: c.String("io"), Direct: c.String("direct")}}
	if dir := c.String("bundle"); dir != "" {
		b, err := bundle.Open(dir)
		if err != nil {
			return nil, err
		}
		o.Record = b.Manifest.Rows.Stride
	}
	say := notes(c)
	next := time.Now().Add(2 * time.Second)
	curve, err := measure.Drive(c.Context, path, o, func(done, total int) {
		if now := time.Now(); now.After(next) && done < total {
			fmt.Fprintf(say, "measuring the drive: %d of %d points\n", done, total)
			next = now.Add(5 * time.Second)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, n := range curve.Notes {
		fmt.Fprintf(say, "note: %s\n", n)
	}
	dir, err := cacheDir()
	if err == nil {
		err = os.MkdirAll(dir, 0o777)
	}
	if err == nil {
		var kept string
		if kept, err = curve.Keep(dir); err == nil {
			fmt.Fprintf(say, "kept in %s\n", kept)
		}
	}
	if err != nil {
		fmt.Fprintf(say, "note: the measurement was not kept: %v\n", err)
	}
	return curve, nil
}

// renderCurve prints the table: a line per read size and way, a column per depth.
func renderCurve(c *measure.Curve) {
	var sizes, depths []int
	at := map[measure.Cell]measure.Cell{}
	key := func(way string, size, depth int) measure.Cell {
		return measure.Cell{Way: way, Size: size, Depth: depth}
	}
	for _, x := range c.Cells {
		sizes, depths = append(sizes, x.Size), append(depths, x.Depth)
		at[key(x.Way, x.Size, x.Depth)] = x
	}
	slices.Sort(sizes)
	slices.Sort(depths)
	sizes, depths = slices.Compact(sizes), slices.Compact(depths)
	fmt.Fprintf(stdout, "drive     %s\nrandom reads in MB/s (reads/s) by reads in flight\n", c)
	t := table.NewWriter()
	t.SetOutputMirror(stdout)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	head := table.Row{"read", "memory"}
	right := []table.ColumnConfig{{Number: 1, Align: text.AlignRight}}
	for i, d := range depths {
		head = append(head, strconv.Itoa(d))
		right = append(right, table.ColumnConfig{Number: 3 + i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(right)
	for _, size := range sizes {
		for _, way := range measure.Ways {
			row, any := table.Row{clix.FormatSize(int64(size)), way}, false
			for _, d := range depths {
				cell := ""
				if x, ok := at[key(way, size, d)]; ok {
					cell, any = fmt.Sprintf("%.0f (%.0f)", x.BytesPer/1e6, x.PerS), true
				}
				row = append(row, cell)
			}
			if any {
				t.AppendRow(row)
			}
		}
	}
	t.Render()
}
