package cluster

import (
	"context"
	"math/rand/v2"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// DefaultCentroids is K when nothing else is said.
const DefaultCentroids = 512

// Options of the cluster stage, which needs the capture stage's output in the same work folder.
type Options struct {
	Config    *checkpoint.Config
	Centroids int // K; 0 = DefaultCentroids
}

type params struct {
	Layers, Neurons, Centroids int
	Seed                       uint64
}

// Run clusters the masks of every layer and projection. Each finished table is a file; an interrupted run goes on with
// the first one missing.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := o.Check(); err != nil {
		return stage.Report{}, err
	}
	if o.Centroids == 0 {
		o.Centroids = DefaultCentroids
	}
	captured := filepath.Join(e.Work, "capture")
	outputs, err := e.Outputs("capture")
	if err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{
		Name: "cluster", Version: 1,
		Inputs: []string{calib.Digest(outputs)},
		Params: params{o.Config.Layers, o.Config.Intermediate, o.Centroids, e.Seed},
		Reads:  []string{"capture"},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, captured, dir, p)
	})
}

// Check refuses what no capture could make right.
func (o Options) Check() error {
	if o.Centroids < 0 || o.Centroids > predictor.MaxCentroids {
		return format.Inputf("--centroids %d: must be 1..%d", o.Centroids, predictor.MaxCentroids)
	}
	return nil
}

func run(ctx context.Context, e *stage.Env, o Options, captured, dir string, p *stage.Progress) (map[string]any, error) {
	c, err := calib.OpenCapture(captured, o.Config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := fits(e.Memory, c, o.Centroids); err != nil {
		return nil, err
	}
	if need := calib.TokensPerCentroid * o.Centroids; c.Tokens < need {
		e.Warn("%d tokens were captured for %d centroids of each table; centroids that hold for other text need about %d tokens each, %d in all: name more --text files, raise --tokens or lower --centroids",
			c.Tokens, o.Centroids, calib.TokensPerCentroid, need)
	}
	w := predictor.Words(c.Neurons)
	s := masks{data: make([]uint64, c.Tokens*w), n: c.Tokens, w: w, m: c.Neurons}
	smallest, largest := predictor.MaxCentroids, 0
	distance := 0.0
	p.Start("cluster", int64(2*c.Layers), "tables")
	for l := range c.Layers {
		for proj := range predictor.Projections {
			path := calib.TablePath(dir, proj, l)
			if t := finished(path, c); t != nil { // left by an interrupted run with the same key
				smallest, largest = min(smallest, t.K), max(largest, t.K)
				distance += meanDistance(s, t)
				p.Add(1)
				continue
			}
			if err := c.Masks(proj, l, s.data); err != nil {
				return nil, err
			}
			rng := rand.New(rand.NewPCG(e.Seed, uint64(2*l+proj)))
			made, err := kMajority(ctx, e.Pool, s, o.Centroids, rng)
			if err != nil {
				return nil, err
			}
			if err := calib.WriteTable(path, made, c.Neurons); err != nil {
				return nil, err
			}
			if err := calib.Seal(path); err != nil {
				return nil, err
			}
			distance += meanDistance(s, made)
			smallest, largest = min(smallest, made.K), max(largest, made.K)
			p.Add(1)
		}
	}
	p.Done()
	return map[string]any{"tables": 2 * c.Layers, "tokens": c.Tokens, "centroids_least": smallest, "centroids_most": largest,
		"mean_hamming": distance / float64(2*c.Layers)}, nil
}

// finished reads a table that has its recorded checksum, or returns nil.
func finished(path string, c *calib.Capture) *calib.Table {
	if !calib.Sealed(path) {
		return nil
	}
	r, err := calib.OpenTable(path, c.Neurons, c.Tokens)
	if err != nil {
		return nil
	}
	defer r.Close()
	t := &calib.Table{K: r.K}
	if t.Centroids, err = r.Centroids(); err != nil {
		return nil
	}
	if t.IDs, err = r.IDs(); err != nil {
		return nil
	}
	if t.Counts, err = r.Counts(); err != nil {
		return nil
	}
	return t
}

// fits holds what one table needs against the budget.
func fits(memory int64, c *calib.Capture, k int) error {
	w, t := int64(predictor.Words(c.Neurons)), int64(c.Tokens)
	n := min(t, max(sampleTokens, sampleTimesK*int64(k)))
	masks, sub, counts := 8*w*t, 8*w*n, int64(k)*int64(c.Neurons)*4
	if need := masks + sub + counts + 16*t; memory > 0 && need > memory {
		return format.Hint(format.Fitf("cluster needs %s: masks of %d tokens %s, sample %s, counts of %d centroids %s; --memory is %s",
			format.IEC(need), t, format.IEC(masks), format.IEC(sub), k, format.IEC(counts), format.IEC(memory)),
			"raise --memory or capture fewer --tokens")
	}
	return nil
}

// meanDistance is the mean Hamming distance from a token's mask to its centroid, from the counts alone.
func meanDistance(s masks, t *calib.Table) float64 {
	size := make([]int64, t.K)
	for _, c := range t.IDs {
		size[c]++
	}
	sum := int64(0)
	for c := range t.K {
		cent, counts := t.Centroids[c*s.w:(c+1)*s.w], t.Counts[c*s.m:(c+1)*s.m]
		for n, v := range counts {
			if cent[n/64]>>(n%64)&1 == 1 {
				sum += size[c] - int64(v)
			} else {
				sum += int64(v)
			}
		}
	}
	return float64(sum) / float64(s.n)
}
