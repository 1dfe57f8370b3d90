package measure

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func bigFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, MinFile), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDrive(t *testing.T) {
	path := bigFile(t)
	steps := 0
	c, err := Drive(context.Background(), path, CurveOptions{Sizes: []int{4096, 65536}, Depths: []int{1, 16, 1024}, Spell: time.Millisecond, Record: 25088},
		func(done, total int) {
			if steps++; done != steps || total != 27 {
				t.Errorf("progress %d of %d at call %d", done, total, steps)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]bool{}
	for _, x := range c.Cells {
		sizes[x.Size] = true
		if !(x.Reads > 0) || math.Abs(x.PerS*float64(x.Size)-x.BytesPer) > 1e-6*x.BytesPer || x.Size*x.Depth > inFlight {
			t.Errorf("%+v", x)
		}
		if x.Way == InPlace && x.Size%c.Align != 0 {
			t.Errorf("%+v lands in place with blocks of %d", x, c.Align)
		}
	}
	if !sizes[4096] || !sizes[25088] || !sizes[65536] {
		t.Errorf("sizes %v", sizes)
	}
	dir := t.TempDir()
	if _, ok := KeptCurve(dir, path); ok {
		t.Error("a curve out of nothing")
	}
	file, err := c.Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := KeptCurve(dir, path)
	if !ok {
		t.Fatal("not found again")
	}
	if d := cmp.Diff(c, kept); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(file, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := KeptCurve(dir, path); ok {
		t.Error("a damaged file was taken")
	}
}

func TestDriveRefusals(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, make([]byte, MinFile-1), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Drive(context.Background(), short, CurveOptions{}, nil); err == nil {
		t.Error("a short file was measured")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Drive(ctx, bigFile(t), CurveOptions{}, nil); err == nil {
		t.Error("a cancelled measurement went on")
	}
}

// TestCurveAt: a drive of 10 µs a read and 1 ns a byte.
func TestCurveAt(t *testing.T) {
	rate := func(size int) float64 { return float64(size) / (10e-6 + 1e-9*float64(size)) }
	c := &Curve{}
	for _, size := range []int{4096, 16384, 65536} {
		c.Cells = append(c.Cells, Cell{Way: InPlace, Size: size, Depth: 1, BytesPer: rate(size) / 5}, Cell{Way: InPlace, Size: size, Depth: 64, BytesPer: rate(size)},
			Cell{Way: Staged, Size: size, Depth: 64, BytesPer: 1})
	}
	for _, size := range []int{4096, 5000, 16384, 25088, 65536} {
		if got, ok := c.At(InPlace, size); !ok || math.Abs(got-rate(size)) > 1e-6*rate(size) {
			t.Errorf("%d bytes: %v, want %v", size, got, rate(size))
		}
	}
	if got, _ := c.At(InPlace, 2048); math.Abs(got-rate(4096)/2) > 1 {
		t.Errorf("half of the smallest read: %v", got)
	}
	if got, _ := c.At(InPlace, 1<<20); got != rate(65536) {
		t.Errorf("beyond the largest: %v", got)
	}
	if _, ok := (&Curve{}).At(InPlace, 4096); ok {
		t.Error("an empty curve answered")
	}
	if b, _ := c.Best(InPlace, 20000); b.Size != 16384 || b.Depth != 64 {
		t.Errorf("%+v", b)
	}
	if d := c.Depth(InPlace, 20000); d != 64 {
		t.Errorf("depth %d", d)
	}
	c.Cells = append(c.Cells, Cell{Way: InPlace, Size: 16384, Depth: 16, BytesPer: 0.98 * rate(16384)}, Cell{Way: InPlace, Size: 16384, Depth: 256, BytesPer: 0.99 * rate(16384)})
	if d := c.Depth(InPlace, 20000); d != 16 {
		t.Errorf("depth %d, want the fewest that bring nearly the best rate", d)
	}
	if d := (&Curve{}).Depth(InPlace, 20000); d != 0 {
		t.Errorf("depth %d without a curve", d)
	}
	if c.Usual() != InPlace {
		t.Error(c.Usual())
	}
	c.Record = 25088 // never measured in place: its drive has blocks of 4096
	if c.Usual() != Staged {
		t.Error(c.Usual())
	}
}

func TestSpread(t *testing.T) {
	for hi, want := range map[int][]int{1: {1}, 2: {1, 2}, 5: {1, 2, 3, 4, 5}, 31: {1, 6, 11, 16, 21, 26, 31}} {
		if got := spread(hi, 7); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", hi, got, want)
		}
	}
}

func TestCalibrationChooses(t *testing.T) {
	c := &Calibration{KMax: 100, Largest: 20}
	for d, r := range map[int]float64{1: 1, 7: 2, 13: 3, 20: 2.5} {
		c.Points = append(c.Points, Point{Mode: "sparse", Dense: d, TokPerS: r})
	}
	c.Points = append(c.Points, Point{Mode: "stream", Dense: 25, TokPerS: 9})
	if got := c.between(); !slices.Equal(got, []int{10, 16}) {
		t.Errorf("between %v", got)
	}
	c.Best = c.best().Dense
	if c.Best != 13 || c.Dense(0, 100) != 13 || c.Dense(100, 7) != 13 || c.Dense(0, 99) != 0 {
		t.Errorf("%+v", c)
	}
	c.Best = 20 // the budget ended it: as many layers as fit
	if c.Dense(0, 100) != 0 {
		t.Error("a prefix that the budget ended was taken for the best")
	}
}

func TestMemory(t *testing.T) {
	if rate, err := Memory(2); err != nil || !(rate > 0) {
		t.Errorf("%v, %v", rate, err)
	}
}
