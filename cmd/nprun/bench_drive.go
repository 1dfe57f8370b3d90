package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		&cli.BoolFlag{Name: "drive", Usage: "measure the drive under the bundle or --file first, over read size, reads in flight and registration, keep it for plans, and say how close the run comes to drive and memory"},
		&cli.StringFlag{Name: "file", Usage: "with --drive: measure the drive under this `FILE` (64 MiB or more, it is only read) and nothing else"},
		&cli.IntFlag{Name: "spell", Value: 150, Usage: "with --drive: `MS` per point"},
	}
}

// machine is what bench --drive measures before the run.
type machine struct {
	curve  *measure.Curve
	memory float64 // bytes per second that all threads read
}

// drive is the curve, or nil.
func (m *machine) drive() *measure.Curve {
	if m == nil {
		return nil
	}
	return m.curve
}

// ioStats tell what the drive did for the measured tokens, and, where the machine was measured, how close the run came to
// what drive and memory allow.
type ioStats struct {
	Busy    float64 `json:"io_busy_s"`               // with reads in flight
	Hidden  float64 `json:"io_hidden"`               // share of that time which no token waited for
	Rate    float64 `json:"read_bytes_per_s"`        // while reads were in flight
	Touched int64   `json:"touched_bytes_per_token"` // of memory: weights and cache
	Bound   *bound  `json:"bound,omitempty"`
}

// bound is what a token cannot be faster than: the longer of reading its rows from the drive and its weights from memory.
type bound struct {
	Drive     float64 `json:"drive_bytes_per_s"` // random reads of the mean length
	Memory    float64 `json:"memory_bytes_per_s"`
	ReadTime  float64 `json:"read_s"`
	TouchTime float64 `json:"touch_s"`
	Times     float64 `json:"token_over_bound"`
	ReadRate  float64 `json:"read_rate_of_drive"`
}

func newIOStats(e *engine.Engine, m *machine) ioStats {
	s := e.Stats()
	io := ioStats{Busy: s.StepIO.Busy.Seconds(), Touched: measure.Touched(e)}
	if io.Busy > 0 && s.StepIO.Reads > 0 {
		io.Hidden = max(0, 1-s.IOWait.Seconds()/io.Busy)
		io.Rate = float64(s.StepIO.Bytes) / io.Busy
	}
	if m == nil || s.Tokens == 0 {
		return io
	}
	b := &bound{Memory: m.memory, TouchTime: float64(io.Touched) / m.memory}
	if io.Rate > 0 {
		var ok bool
		if b.Drive, ok = m.curve.At(m.curve.Usual(), int(s.StepIO.Bytes/s.StepIO.Reads)); ok {
			b.ReadTime = float64(s.StepIO.Bytes) / float64(s.Tokens) / b.Drive
			b.ReadRate = io.Rate / b.Drive
		}
	}
	b.Times = s.Total.Seconds() / float64(s.Tokens) / max(b.ReadTime, b.TouchTime)
	io.Bound = b
	return io
}

func (s ioStats) String() string {
	line := fmt.Sprintf("%s/s while reads were in flight; %.0f%% of that time was hidden behind computing", clix.FormatSize(int64(s.Rate)), 100*s.Hidden)
	if b := s.Bound; b != nil && b.Drive > 0 {
		line += fmt.Sprintf("; %.2f of the drive's %s/s for reads of that size", b.ReadRate, clix.FormatSize(int64(b.Drive)))
	}
	return line
}

func (b *bound) String() string {
	return fmt.Sprintf("a token takes %.2f times the longer of reading from the drive (%s) and from memory (%s at %s/s)", b.Times, seconds(b.ReadTime), seconds(b.TouchTime), clix.FormatSize(int64(b.Memory)))
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
	if err := clix.NoArgs(c); err != nil {
		return err
	}
	curve, err := measureDrive(c, c.String("file"))
	if err != nil {
		return err
	}
	drawn := drawAll(c, curveFigures(curve))
	if c.Bool("json") {
		return errors.Join(clix.WriteJSON(stdout, struct {
			Drive *measure.Curve `json:"drive"`
		}{curve}), drawn)
	}
	renderCurve(curve)
	return drawn
}

// measureMachine measures the drive under the bundle, and memory.
func measureMachine(c *cli.Context, dir string, threads int) (*machine, error) {
	curve, err := measureDrive(c, filepath.Join(dir, bundle.MemberRows))
	if err != nil {
		return nil, err
	}
	rate, err := measure.Memory(threads)
	if err != nil {
		return nil, err
	}
	measure.ForgetPeak()
	return &machine{curve, rate}, nil
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
