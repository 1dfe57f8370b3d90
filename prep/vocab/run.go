package vocab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Name of the stage and of its folder.
const Name = calib.VocabName

// The stage's outputs in its folder, besides calib.JointIDsFile.
const (
	PaperFile = "paper-rows.safetensors" // score rows of `paper+`
	JointFile = "joint-rows.safetensors" // score rows of `centroid`
)

// defaultTokens are enough for some hundred centroids.
const defaultTokens = 65_536

// Options of the stage, which needs the capture stage's output in the same work folder, and for Paper the cluster
// stage's.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string // as for capture
	Tokens     int      // at most; 0 = 65,536, at most capture's
	Paper      bool     // rows for `paper+`
	Joint      bool     // vocabularies and rows for `centroid`
	Centroids  int      // K of a joint vocabulary; 0 = from the model's size
	Rank       int      // of the rows; 0 = from the model's size
	Dense      int      // dense prefix that the bundle is made for: layers before it get no rows
}

type params struct {
	Tokens, Centroids, Rank, Dense int
	Paper, Joint                   bool
	Seed                           uint64
}

// DefaultCentroids is K of a joint vocabulary: about a sixth of the neurons, 64 to 512.
func DefaultCentroids(m int) int { return min(max(m/6/64*64, 64), 512) }

// DefaultRank is the rank of the rows: about one in 24 neurons, 32 to 128.
func DefaultRank(m int) int { return min(max((m/24+31)/32*32, 32), 128) }

// Check refuses options before anything is run.
func (o Options) Check() error { return o.defaults() }

func (o *Options) defaults() error {
	cfg := o.Checkpoint.Config
	if o.Tokens == 0 {
		o.Tokens = defaultTokens
	}
	if o.Centroids == 0 {
		o.Centroids = DefaultCentroids(cfg.Intermediate)
	}
	if o.Rank == 0 {
		o.Rank = DefaultRank(cfg.Intermediate)
	}
	switch {
	case cfg.Layers < 2:
		return format.Inputf("a model of one layer has nothing to predict: prepare it with --dense")
	case o.Tokens < 2:
		return format.Inputf("%d tokens: position 0 is left out, so at least 2 are needed", o.Tokens)
	case o.Centroids < 1 || o.Centroids > predictor.MaxCentroids:
		return format.Inputf("--joint-centroids %d: must be 1..%d", o.Centroids, predictor.MaxCentroids)
	case o.Rank < 1 || o.Rank > cfg.Intermediate:
		return format.Inputf("rank %d of the score rows: must be 1..%d", o.Rank, cfg.Intermediate)
	case o.Dense < 1 || o.Dense >= cfg.Layers:
		return format.Inputf("dense prefix of %d layers: must be 1..%d, so that a layer is left to name", o.Dense, cfg.Layers-1)
	}
	return nil
}

// Run collects expectations and makes score rows.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := o.defaults(); err != nil {
		return stage.Report{}, err
	}
	hash, err := text.Hash(o.Texts)
	if err != nil {
		return stage.Report{}, err
	}
	reads := []string{"capture"}
	if o.Paper {
		reads = append(reads, "cluster")
	}
	spec := stage.Spec{
		Name: Name, Version: 1, Inputs: append([]string{hash}, o.Checkpoint.Files()...), Reads: reads,
		Params: params{o.Tokens, o.Centroids, o.Rank, o.Dense, o.Paper, o.Joint, e.Seed},
	}
	for _, name := range reads {
		outputs, err := e.Outputs(name)
		if err != nil {
			return stage.Report{}, err
		}
		spec.Inputs = append(spec.Inputs, calib.Digest(outputs))
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		if err := collect(ctx, e, o, dir, p); err != nil {
			return nil, err
		}
		return join(dir, o)
	})
}

// bytes is what the stage holds besides the walker: the residual stream, one layer's importances, a sample of them, a
// window's, and sums.
func bytes(c *checkpoint.Config, o Options, tokens, window int) int64 {
	t, h, m := int64(tokens), int64(c.Hidden), int64(c.Intermediate)
	n := t*4*h + int64(window)*m*8
	if o.Joint {
		n += 2*t*m + 2*min(t, int64(max(leastRows, perCenter*o.Centroids)))*m + int64(o.Centroids)*m*16
	}
	return n
}

// collect runs the forward pass and leaves a unit for every layer from o.Dense on.
func collect(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) error {
	cfg := o.Checkpoint.Config
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		return err
	}
	if txt.Hash != c.Text || len(txt.Tokens) < c.Tokens {
		return format.Hint(format.Inputf("this is not the text that the masks were captured on"), "name the same --text files as for npprep capture, in the same order")
	}
	ws := c.Spread(o.Tokens)
	n := calib.Tokens(ws)
	need := bytes(cfg, o, n, c.Window)
	if err := forward.Check(cfg, c.Window, e.Memory, need, Name); err != nil {
		return err
	}
	walker, err := forward.New(o.Checkpoint, e.Pool, c.Window, e.Memory, need)
	if err != nil {
		return err
	}
	g := walker.Begin(txt.Tokens, ws)
	begin := make([]bool, n)
	row := 0
	for _, w := range ws {
		begin[row] = true
		row += w.Len
	}
	var imp *importances
	if o.Joint {
		imp = &importances{x: make([]uint16, n*cfg.Intermediate), n: n, m: cfg.Intermediate}
	}
	p.Start(Name, int64(n)*int64(cfg.Layers), "token·layers")
	for l := range cfg.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := unit(dir, l)
		if l < o.Dense || calib.Sealed(path) {
			if err := g.Layer(l, &forward.Taps{}); err != nil {
				return g.Explain(err, txt.Source)
			}
			p.Add(int64(n))
			continue
		}
		_, rows, err := walker.Load(l)
		if err != nil {
			return err
		}
		a := &taken{m: cfg.Intermediate, imp: imp, begin: begin, down: make([]float32, rows.N)}
		forward.DownNorms(e.Pool, a.down, rows, cfg.Hidden)
		if o.Paper {
			if err := a.readIDs(e.Work, c, ws, l); err != nil {
				return err
			}
		}
		if err := g.Layer(l, a.taps(e.Pool)); err != nil {
			return g.Explain(err, txt.Source)
		}
		entries, err := a.unit(ctx, e, o, l)
		if err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
		if err := tensors.Write(path, entries, nil); err != nil {
			return err
		}
		if err := calib.Seal(path); err != nil {
			return err
		}
		p.Add(int64(n))
	}
	p.Done()
	return nil
}

func unit(dir string, l int) string {
	return filepath.Join(dir, fmt.Sprintf(".layer-%05d.safetensors", l))
}

// readIDs takes the cluster stage's ids of the windows' tokens.
func (a *taken) readIDs(work string, c *calib.Capture, ws []calib.Window, l int) error {
	for p := range predictor.Projections {
		t, err := calib.OpenTable(calib.TablePath(filepath.Join(work, "cluster"), p, l), c.Neurons, c.Tokens)
		if err != nil {
			return err
		}
		all, err := t.IDs()
		t.Close()
		if err != nil {
			return err
		}
		for _, w := range ws {
			a.ids[p] = append(a.ids[p], all[w.Start:w.Start+w.Len]...)
		}
		a.sums[p], a.count[p] = make([]float32, t.K*a.m), make([]int32, t.K)
	}
	return nil
}

// unit is what a layer leaves: rows for `paper+`, and ids and rows for `centroid`.
func (a *taken) unit(ctx context.Context, e *stage.Env, o Options, l int) ([]tensors.Entry, error) {
	var out []tensors.Entry
	left := []float32{}
	if o.Paper {
		var fits []*rows
		for p := range predictor.Projections {
			f, err := fitRows(logarithms(expectations(a.sums[p], a.count[p], a.m)), a.count[p], a.m, o.Rank)
			if err != nil {
				return nil, err
			}
			fits, left = append(fits, f), append(left, float32(f.left))
		}
		more := make([]float64, a.m) // 2·log‖down‖
		for j, v := range a.down {
			more[j] = float64(v) * float64(v)
		}
		out = append(out, prefixed(PaperFile, entries(l, predictor.Projections[:], fits, logarithms(more)))...)
	}
	if o.Joint {
		v, err := cluster(ctx, e.Pool, a.imp, o.Centroids, rand.New(rand.NewPCG(e.Seed, uint64(l))))
		if err != nil {
			return nil, err
		}
		sums, count := energies(e.Pool, a.imp, v)
		f, err := fitRows(logarithms(expectations(sums, count, a.m)), count, a.m, o.Rank)
		if err != nil {
			return nil, err
		}
		left = append(left, float32(f.left))
		out = append(out, prefixed(JointFile, entries(l, []string{predictor.JointTable}, []*rows{f}, make([]float64, a.m)))...)
		out = append(out, prefixed(calib.JointIDsFile, []tensors.Entry{tensors.I32Entry(calib.JointIDsName(l), []int{len(v.ids)}, v.ids)})...)
	}
	return append(out, tensors.F32Entry(leftName, []int{len(left)}, left)), nil
}

// leftName is a tensor of the units only: the shares of variance over centroids that the rows' factors leave.
const leftName = "left"

// energies sums the squares of importances over the members of each centroid, rows of zeros left out.
func energies(pool *kernels.Pool, s *importances, v *clusters) (sums []float32, count []int32) {
	at := s.counted()
	sums, count = make([]float32, v.k*s.m), make([]int32, v.k)
	for _, i := range at {
		count[v.ids[i]]++
	}
	pool.Run(s.m, 64, func(lo, hi int) {
		x := make([]float32, hi-lo)
		for _, i := range at {
			kernels.F16ToF32(x, s.row(int(i))[lo:hi])
			sum := sums[int(v.ids[i])*s.m+lo:]
			for j, u := range x {
				sum[j] += u * u
			}
		}
	})
	return sums, count
}
