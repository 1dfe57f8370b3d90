package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/sample"
)

// calibrationVersion is raised when the file's meaning changes.
const calibrationVersion = 3

// coarsePoints is how many dense prefixes the first pass tries.
const coarsePoints = 7

// Point is one run of a calibration.
type Point struct {
	Mode    string  `json:"mode"`
	Dense   int     `json:"d"`
	TokPerS float64 `json:"tok_per_s"` // by the median token, which a busy machine disturbs least
	IOWait  float64 `json:"io_wait"`   // share of the time
	IOBusy  float64 `json:"io_busy"`   // share of the time with reads in flight
	Read    float64 `json:"read_bytes_per_token"`
	Reuse   float64 `json:"reuse"`
	Seconds float64 `json:"seconds"` // of the run, loading included
}

// Calibration says which dense prefix was the fastest with a budget on this device.
type Calibration struct {
	Version  int     `json:"version"`
	Rows     string  `json:"rows_sha256"` // which bundle
	Budget   int64   `json:"memory_budget_bytes"`
	KMax     int     `json:"k_max"`
	Threads  int     `json:"threads"`
	Selector string  `json:"selector"`
	Largest  int     `json:"largest_d"` // that the budget holds
	Best     int     `json:"d_star"`
	Points   []Point `json:"points"` // stream first, then d ascending
	Gap      int     `json:"gap"`    // bytes between two rows that are read through, the fastest with d*
	Gaps     []Gap   `json:"gaps"`   // with d*, gap ascending
	Limits   []Limit `json:"limits"` // with d*, rows descending; none where a limit was given
}

// Limit is a run with d* that reads at most so many rows of a layer and token.
type Limit struct {
	Rows    int     `json:"rows_per_layer_cap"` // 0 is no limit
	TokPerS float64 `json:"tok_per_s"`
	Read    float64 `json:"read_bytes_per_token"`
}

// limitShares are the limits that are tried, as shares of K_max.
var limitShares = []float64{0.25, 0.17, 0.10}

// Gap is a run with d* that reads through gaps.
type Gap struct {
	Bytes   int     `json:"gap"`
	TokPerS float64 `json:"tok_per_s"`
	Read    float64 `json:"read_bytes_per_token"`
}

// gapRecords are the gaps that are tried, in records, and gapGain is what one must bring over reading none.
var gapRecords = []int{1, 4}

const gapGain = 1.03

// CalibrateOptions say how to calibrate.
type CalibrateOptions struct {
	Engine engine.Options // mode and dense layers are the calibration's own
	Tokens int            // per point, after Warm
	Warm   int
	Prompt func(e *engine.Engine) []int32
	Report func(p Point, done, total int) // after every point
}

// Calibrate runs some tokens with one dense prefix after the other, then around the fastest, and returns what it found.
func Calibrate(ctx context.Context, dir string, o CalibrateOptions) (*Calibration, error) {
	b, err := bundle.Open(dir)
	if err != nil {
		return nil, err
	}
	rows, _ := b.Manifest.Member(bundle.MemberRows)
	eo := o.Engine
	eo.Mode, eo.Dense, eo.Calibrated = engine.ModeSparse, 0, b.Manifest.Rows.Layers-1
	_, most, err := engine.Plans(b, eo)
	if err != nil {
		return nil, err
	}
	c := &Calibration{Version: calibrationVersion, Rows: rows.SHA256, Budget: most.Budget, KMax: most.KMax, Largest: most.Dense}
	eo.Memory = most.Budget // the same for all points, whatever else takes memory meanwhile
	o.Tokens = max(o.Tokens, 1)
	total := min(coarsePoints, most.Dense) + 3 + len(gapRecords) + len(limitShares)
	try := func(mode string, dense int) error {
		p, err := c.point(ctx, dir, eo, mode, dense, o)
		if err != nil {
			return err
		}
		c.Points = append(c.Points, p)
		if o.Report != nil {
			o.Report(p, len(c.Points), max(total, len(c.Points)))
		}
		return nil
	}
	if err := try(engine.ModeStream, 0); err != nil && !errors.Is(err, format.ErrFit) {
		return nil, err
	}
	for _, d := range spread(most.Dense, coarsePoints) {
		if err := try(engine.ModeSparse, d); err != nil {
			return nil, err
		}
	}
	for _, d := range c.between() {
		if err := try(engine.ModeSparse, d); err != nil {
			return nil, err
		}
	}
	c.Best = c.best().Dense
	if err := c.gaps(ctx, dir, eo, b.Manifest.Rows.Stride, o, total); err != nil {
		return nil, err
	}
	if err := c.limits(ctx, dir, eo, o, total); err != nil {
		return nil, err
	}
	streams := slices.DeleteFunc(slices.Clone(c.Points), func(p Point) bool { return p.Mode == engine.ModeSparse })
	c.Points = append(streams, c.sparse()...)
	return c, nil
}

// gaps tries reading through gaps with d*, against reading none in the same minute.
func (c *Calibration) gaps(ctx context.Context, dir string, eo engine.Options, stride int, o CalibrateOptions, total int) error {
	for _, n := range append([]int{0}, gapRecords...) {
		eo.Storage.Gap = n * stride
		p, err := c.point(ctx, dir, eo, engine.ModeSparse, c.Best, o)
		if err != nil {
			return err
		}
		c.Gaps = append(c.Gaps, Gap{eo.Storage.Gap, p.TokPerS, p.Read})
		if o.Report != nil && n > 0 {
			done := len(c.Points) + len(c.Gaps) - 1
			o.Report(p, done, max(total, done))
		}
	}
	best := c.Gaps[0].TokPerS * gapGain
	for _, g := range c.Gaps[1:] {
		if g.TokPerS > best {
			c.Gap, best = g.Bytes, g.TokPerS
		}
	}
	return nil
}

// limits tries reading less with d*, where the options leave that open.
func (c *Calibration) limits(ctx context.Context, dir string, eo engine.Options, o CalibrateOptions, total int) error {
	if eo.ReadCap > 0 || eo.ReadBudget > 0 {
		return nil
	}
	eo.Storage.Gap = c.Gap
	c.Limits = []Limit{{0, c.Gaps[slices.IndexFunc(c.Gaps, func(g Gap) bool { return g.Bytes == c.Gap })].TokPerS, c.best().Read}}
	for _, share := range limitShares {
		eo.ReadCap = max(1, int(share*float64(c.KMax)))
		p, err := c.point(ctx, dir, eo, engine.ModeSparse, c.Best, o)
		if err != nil {
			return err
		}
		c.Limits = append(c.Limits, Limit{eo.ReadCap, p.TokPerS, p.Read})
		if o.Report != nil {
			done := len(c.Points) + len(c.Gaps) - 1 + len(c.Limits) - 1
			o.Report(p, done, max(total, done))
		}
	}
	return nil
}

// spread returns at most n numbers from 1 to hi, both among them, evenly.
func spread(hi, n int) []int {
	n = min(n, hi)
	if n == 1 {
		return []int{hi}
	}
	var all []int
	for i := range n {
		all = append(all, 1+i*(hi-1)/(n-1))
	}
	return slices.Compact(all)
}

// sparse are the points of sparse mode, d ascending.
func (c *Calibration) sparse() []Point {
	var all []Point
	for _, p := range c.Points {
		if p.Mode == engine.ModeSparse {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Point) int { return a.Dense - b.Dense })
	return all
}

// best is the fastest point; of equally fast ones the one with the most layers exact.
func (c *Calibration) best() Point {
	var best Point
	for _, p := range c.sparse() {
		if p.TokPerS >= best.TokPerS {
			best = p
		}
	}
	return best
}

// between are the middles between the fastest point and its neighbours.
func (c *Calibration) between() []int {
	all := c.sparse()
	i := slices.IndexFunc(all, func(p Point) bool { return p == c.best() })
	var mid []int
	for _, k := range []int{i - 1, i} {
		if k >= 0 && k+1 < len(all) && all[k+1].Dense-all[k].Dense > 1 {
			mid = append(mid, (all[k].Dense+all[k+1].Dense)/2)
		}
	}
	return mid
}

// point measures one plan.
func (c *Calibration) point(ctx context.Context, dir string, eo engine.Options, mode string, dense int, o CalibrateOptions) (p Point, err error) {
	start := time.Now()
	eo.Mode, eo.Dense, eo.Calibrated = mode, dense, 0
	e, err := engine.Open(ctx, dir, eo)
	if err != nil {
		return p, err
	}
	defer e.Close()
	if mode == engine.ModeSparse {
		c.Selector, c.Threads = e.SelectorName(), e.Threads()
	}
	var took []time.Duration
	if _, err := Steps(ctx, e, o.Prompt(e), o.Warm, o.Tokens, nil, func(d time.Duration) { took = append(took, d) }); err != nil {
		return p, err
	}
	s := e.Stats()
	t := s.Total.Seconds()
	slices.Sort(took)
	return Point{Mode: mode, Dense: e.Plan.Dense, TokPerS: 1 / took[len(took)/2].Seconds(), IOWait: s.IOWait.Seconds() / t, IOBusy: s.StepIO.Busy.Seconds() / t,
		Read: float64(s.StepIO.Bytes) / float64(s.Tokens), Reuse: s.Reuse(), Seconds: time.Since(start).Seconds()}, nil
}

// Steps runs a prompt, warm tokens that are not counted, and n tokens, likeliest token first, and returns the statistics
// of the prompt; the engine's are those of the n tokens. begin, if any, is called before the first of them, each is told
// the time of every one.
func Steps(ctx context.Context, e *engine.Engine, prompt []int32, warm, n int, begin func(), each func(time.Duration)) (prompted engine.Stats, err error) {
	greedy, err := sample.New(sample.Params{})
	if err != nil {
		return prompted, err
	}
	logits, err := e.Prefill(ctx, prompt)
	if err != nil {
		return prompted, err
	}
	prompted = e.Stats()
	for i := range warm + n {
		if i == warm {
			e.ResetStats()
			if begin != nil {
				begin()
			}
		}
		id, err := greedy.Sample(logits, prompt)
		if err != nil {
			return prompted, err
		}
		start := time.Now()
		if logits, err = e.Step(ctx, id); err != nil {
			return prompted, err
		}
		if i >= warm && each != nil {
			each(time.Since(start))
		}
	}
	return prompted, nil
}

// calibrationPaths are where a bundle's calibration may lie: beside the bundle, or in the cache where that is read-only.
func calibrationPaths(dir, cache, rows string) []string {
	paths := []string{filepath.Clean(dir) + ".calibration.json"}
	if cache != "" && len(rows) >= 16 {
		paths = append(paths, filepath.Join(cache, "calibration-"+rows[:16]+".json"))
	}
	return paths
}

// Keep writes the calibration beside the bundle, or into cache where that cannot be written, and returns the file.
func (c *Calibration) Keep(dir, cache string) (path string, err error) {
	for _, path = range calibrationPaths(dir, cache, c.Rows) {
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			if err = writeJSON(path, c); err == nil {
				return path, nil
			}
		}
	}
	return path, err
}

// KeptCalibration returns what was kept for a bundle; false when there is none for these very rows.
func KeptCalibration(b *bundle.Bundle, cache string) (*Calibration, bool) {
	rows, _ := b.Manifest.Member(bundle.MemberRows)
	for _, path := range calibrationPaths(b.Dir, cache, rows.SHA256) {
		c := &Calibration{}
		if readJSON(path, c) == nil && c.Version == calibrationVersion && c.Rows == rows.SHA256 && c.Best >= 1 && c.Best <= c.Largest && c.Largest < b.Manifest.Rows.Layers {
			return c, true
		}
	}
	return nil, false
}

// Dense is the dense prefix that the calibration asks for, given K_max (0 is the bundle's own); 0 when it says nothing
// about it: made for another K_max, or when the budget, not the drive, was what ended the prefix, so that a larger budget
// should hold more.
func (c *Calibration) Dense(kMax, bundleKMax int) int {
	if kMax == 0 {
		kMax = bundleKMax
	}
	if c.KMax != kMax {
		return 0
	}
	if c.Best == c.Largest {
		return 0
	}
	return c.Best
}

// String is one line.
func (c *Calibration) String() string {
	return fmt.Sprintf("d* = %d of at most %d: %.2f tok/s", c.Best, c.Largest, c.best().TokPerS)
}
