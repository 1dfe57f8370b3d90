package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/storage"
)

// How a read gets to its memory.
const (
	InPlace      = "in place"     // straight to its destination, registered file: how rows are read
	Staged       = "registered"   // through registered staging memory, copied out
	Unregistered = "unregistered" // the same with a plain descriptor and plain memory
)

// Ways are the three, in the order of the report.
var Ways = []string{InPlace, Staged, Unregistered}

// inFlight bounds what a cell of the curve has in flight, and with it the memory: three batches and the staging.
const inFlight = 32 << 20

// MinFile is the smallest file that says something about a drive: below it the drive's own cache answers.
const MinFile = 64 << 20

// Cell is one point of the curve.
type Cell struct {
	Way      string  `json:"way"`
	Size     int     `json:"read_bytes"`
	Depth    int     `json:"queue_depth"`
	Reads    int64   `json:"reads"`
	PerS     float64 `json:"reads_per_s"`
	BytesPer float64 `json:"bytes_per_s"` // wanted bytes; widening to the drive's blocks does not count
}

// Curve is how fast a drive answers random reads.
type Curve struct {
	Version int           `json:"version"`
	Path    string        `json:"file"`
	Drive   storage.Drive `json:"drive"`
	Backend string        `json:"io_backend"`
	Direct  bool          `json:"direct_io"`
	Align   int           `json:"align_bytes"`
	Record  int           `json:"record_bytes,omitempty"` // of the bundle that was measured with
	Cells   []Cell        `json:"cells"`
	Notes   []string      `json:"notes,omitempty"`
}

// curveVersion is raised when the file's meaning changes.
const curveVersion = 1

// CurveOptions say what to measure. Zero values choose.
type CurveOptions struct {
	Sizes   []int // bytes per read
	Depths  []int // reads in flight
	Spell   time.Duration
	Record  int // the size of a bundle's records: measured as well
	Storage storage.Options
}

// Drive measures the drive under a file by reading the file at random places with the runtime's reader. progress, if
// any, is told cells done and in all.
func Drive(ctx context.Context, path string, o CurveOptions, progress func(done, total int)) (*Curve, error) {
	if o.Sizes == nil {
		o.Sizes = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	}
	if o.Record > 0 {
		o.Sizes = append(slices.Clone(o.Sizes), o.Record)
	}
	if o.Depths == nil {
		o.Depths = []int{1, 4, 16, 64, 256}
	}
	if o.Spell <= 0 {
		o.Spell = 150 * time.Millisecond
	}
	slices.Sort(o.Sizes)
	sizes := slices.Compact(o.Sizes)
	c := &Curve{Version: curveVersion, Path: path, Record: o.Record}
	var err error
	if c.Drive, err = storage.DriveOf(path); err != nil {
		return nil, err
	}
	done, total := 0, len(Ways)*len(sizes)*len(o.Depths)
	for _, size := range sizes {
		for _, depth := range o.Depths {
			for _, way := range Ways {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				if size*depth <= inFlight {
					cell, err := c.cell(ctx, path, way, size, depth, o)
					if err != nil {
						return nil, err
					}
					if cell != nil {
						c.Cells = append(c.Cells, *cell)
					}
				}
				if done++; progress != nil {
					progress(done, total)
				}
			}
		}
	}
	return c, nil
}

// cell measures one point; nil where the reader does not give that depth or way.
func (c *Curve) cell(ctx context.Context, path, way string, size, depth int, o CurveOptions) (*Cell, error) {
	so := o.Storage
	so.QueueDepth, so.Gap, so.MaxRead = depth, 0, 0
	so.Unregistered = way == Unregistered
	piece := (size + 2*4096 - 1) / 4096 * 4096 // a record may straddle a page more than it fills
	so.Staging = max(depth*piece, 8*piece)     // the reader joins nothing, because places are random, and splits nothing
	r, err := storage.Open(path, so)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info := r.Info()
	c.Backend, c.Direct, c.Align, c.Notes = info.Backend, info.Direct, info.Align, info.Notes
	if r.Size() < MinFile {
		return nil, format.Inputf("%s: %d bytes; a file of at least %d MiB is wanted to measure its drive", path, r.Size(), MinFile>>20)
	}
	if info.QueueDepth != depth || info.Backend != "uring" && way == Unregistered || way == InPlace && size%info.Align != 0 {
		return nil, nil
	}
	s, err := newSpinner(r, way == InPlace, size, depth)
	if err != nil {
		return nil, err
	}
	defer s.free()
	defer s.drain()
	if err := s.step(); err != nil { // the first batch brings the pipeline up
		return nil, err
	}
	before, start := r.Stats(), time.Now()
	for time.Since(start) < o.Spell {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	after, took := r.Stats(), time.Since(start).Seconds()
	n := after.Wanted - before.Wanted
	return &Cell{Way: way, Size: size, Depth: depth, Reads: n / int64(size), PerS: float64(n) / float64(size) / took, BytesPer: float64(n) / took}, nil
}

// spinner keeps three batches of random reads queued, so that the drive always has depth of them.
type spinner struct {
	r       *storage.Reader
	batches [3]storage.Batch
	next    int
	sent    [3]bool
	size    int
	places  int64
	free    func()
	rng     *rand.Rand
}

func newSpinner(r *storage.Reader, inPlace bool, size, depth int) (*spinner, error) {
	n := max(depth, 8)
	piece := (size + 4095) / 4096 * 4096
	mem, free, err := storage.AllocAligned(len(spinner{}.batches) * n * piece)
	if err != nil {
		return nil, err
	}
	// Places are multiples of the size, as a bundle's records are.
	s := &spinner{r: r, size: size, places: r.Size() / int64(size), free: free, rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	for k := range s.batches {
		b := &s.batches[k]
		b.InPlace = inPlace
		for i := range n {
			b.Items = append(b.Items, storage.Item{Dst: mem[(k*n+i)*piece:][:size:size]})
		}
		s.submit(k)
	}
	return s, nil
}

func (s *spinner) submit(k int) {
	for i := range s.batches[k].Items {
		s.batches[k].Items[i].Off = s.rng.Int64N(s.places) * int64(s.size)
	}
	s.sent[k] = true
	s.r.Submit(&s.batches[k])
}

// step waits for the oldest batch and queues another.
func (s *spinner) step() error {
	k := s.next
	s.sent[k] = false
	if err := s.r.Wait(&s.batches[k]); err != nil {
		return err
	}
	s.submit(k)
	s.next = (k + 1) % len(s.batches)
	return nil
}

// drain waits for what is in flight, before its memory goes.
func (s *spinner) drain() {
	for k := range s.batches {
		if s.sent[k] {
			_ = s.r.Wait(&s.batches[k])
		}
	}
}

// Best is the fastest depth of a way at the size nearest to size; false when nothing was measured.
func (c *Curve) Best(way string, size int) (Cell, bool) {
	var best Cell
	near := func(x int) float64 { // in octaves
		if x > size {
			return float64(x) / float64(size)
		}
		return float64(size) / float64(x)
	}
	for _, x := range c.Cells {
		if x.Way != way {
			continue
		}
		if best.Size == 0 || near(x.Size) < near(best.Size) || x.Size == best.Size && x.BytesPer > best.BytesPer {
			best = x
		}
	}
	return best, best.Size > 0
}

// enough is the share of the best rate that is worth no more reads in flight.
const enough = 0.97

// Depth is how many reads of about size bytes should be in flight: the fewest that bring nearly the best rate; 0 unknown.
func (c *Curve) Depth(way string, size int) int {
	best, ok := c.Best(way, size)
	if !ok {
		return 0
	}
	depth := best.Depth
	for _, x := range c.Cells {
		if x.Way == way && x.Size == best.Size && x.BytesPer >= enough*best.BytesPer {
			depth = min(depth, x.Depth)
		}
	}
	return depth
}

// At is the rate of reads of size bytes at the best depth, between the measured sizes by the line through reads of
// a + b·size seconds.
func (c *Curve) At(way string, size int) (bytesPerS float64, ok bool) {
	var sizes []int
	for _, x := range c.Cells {
		if x.Way == way && !slices.Contains(sizes, x.Size) {
			sizes = append(sizes, x.Size)
		}
	}
	if len(sizes) == 0 || size <= 0 {
		return 0, false
	}
	slices.Sort(sizes)
	i, exact := slices.BinarySearch(sizes, size)
	each := func(s int) float64 { x, _ := c.Best(way, s); return float64(s) / x.BytesPer }
	switch {
	case exact:
		return float64(size) / each(size), true
	case i == 0: // smaller: as many reads as of the smallest
		return float64(size) / each(sizes[0]), true
	case i == len(sizes): // larger: the rate of the largest
		x, _ := c.Best(way, sizes[i-1])
		return x.BytesPer, true
	}
	lo, hi := sizes[i-1], sizes[i]
	f := float64(size-lo) / float64(hi-lo)
	return float64(size) / (each(lo) + f*(each(hi)-each(lo))), true
}

// String is one line.
func (c *Curve) String() string {
	name := c.Drive.Device
	if c.Drive.Model != "" {
		name += " (" + c.Drive.Model + ")"
	}
	return fmt.Sprintf("%s, %s, %s, direct %v, blocks of %d bytes", name, c.Drive.FileSystem, c.Backend, c.Direct, c.Align)
}

// Usual is the way that rows are read where the drive's blocks divide the records.
func (c *Curve) Usual() string {
	for _, x := range c.Cells {
		if x.Way == InPlace && (c.Record == 0 || x.Size == c.Record) {
			return InPlace
		}
	}
	return Staged
}
