package engine

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/resident"
	"neuroprefetcher/runtime/storage"
	"neuroprefetcher/runtime/tokenizer"
)

// Options say how a bundle is run. The zero value chooses everything.
type Options struct {
	Mode       string // auto, resident, stream, sparse
	Dense      int    // layers kept dense; 0 chooses
	KMax       int    // neurons of a sparse layer; 0 is the bundle's
	Calibrated int    // dense layers of sparse mode where Dense chooses and they fit; 0: as many as fit, or the bundle's default
	Memory     int64  // bytes for the whole process; 0 is what the container and the machine leave
	Context    int    // longest sequence; 0 chooses
	Threads    int    // 0 is GOMAXPROCS
	Selector   string // one of those the bundle has; "" is its first
	Margin     float32
	ReadCap    int          // most rows read per layer and token; 0 is no limit
	ReadBudget int64        // most bytes of rows read per token, the same share for every sparse layer; 0 is no limit
	Wrap       WrapSelector // makes the selector from the bundle's; nil leaves it
	Storage    storage.Options
	Progress   func(done, total int64) // bytes of the layers that stay in memory
}

// Engine runs one sequence at a time. It is not safe for concurrent use.
type Engine struct {
	Bundle    *bundle.Bundle
	Config    *checkpoint.Config
	Tokenizer *tokenizer.Tokenizer
	Plan      *Plan
	LoadTime  time.Duration

	opts     Options
	geometry bundle.Geometry
	m        *model.Model
	reader   *storage.Reader
	kv       *model.KV
	batch    *model.Batch
	step1    *model.Step
	stream   *streamer      // rows that are read for every pass; nil when every MLP is in memory
	dense    []model.Rows   // per layer its rows in memory: all, the first N in stream mode, or none
	sparse   []*sparseLayer // per layer, nil unless it is a sparse one
	checking *sparseLayer   // the layer whose new rows are being checked
	runCheck func(lo, hi int)
	selector predictor.Selector
	means    *predictor.Means // nil: nothing stands in for what is left out
	chooser  resident.Chooser // one for all layers: its working memory is a few bytes per neuron
	gate0    gate0Namer
	features predictor.Features
	rowCRC   []uint32

	x, xs     []float32 // (H) residual stream of a step, (microbatch, H) of a prompt
	logits    []float32 // (vocab)
	scores    []float32 // (M)
	ids1      []int32
	seq       []int32 // the tokens in the cache
	denseOff  []int   // (M) where records begin in a resident layer
	streamOff []int   // (chunk) and in a stream buffer

	stats           Stats
	ioWait, predict time.Duration // of the step in progress
	frees           []func()
}

// Open plans the memory, loads what stays resident and returns an engine with an empty sequence.
func Open(ctx context.Context, dir string, o Options) (e *Engine, err error) {
	start := time.Now()
	b, err := bundle.Open(dir)
	if err != nil {
		return nil, err
	}
	e = &Engine{Bundle: b, Config: &b.Manifest.Model, geometry: b.Manifest.Rows}
	if e.Tokenizer, err = tokenizer.Load(b.Path(bundle.MemberTokenizer)); err != nil {
		return nil, err
	}
	// Parsing leaves garbage behind: give it back before the weights come, so that the peak is the plan.
	debug.FreeOSMemory()
	p, err := newPlanner(b, o, threadCount(o.Threads))
	if err != nil {
		return nil, err
	}
	if e.Plan, err = p.choose(); err != nil {
		return nil, err
	}
	o.Storage.Staging, o.Selector = p.staging(), p.o.Selector
	e.opts = o
	defer func() {
		if err != nil {
			e.Close()
			e = nil
		}
	}()
	// The weights lie outside the Go heap; what is inside is small and may not double.
	debug.SetGCPercent(25)
	if e.reader, err = storage.Open(b.Path(bundle.MemberRows), o.Storage); err != nil {
		return e, err
	}
	verified := e.verifyMembers(ctx)
	defer func() {
		if verr := verified(err != nil); err == nil {
			err = verr
		}
	}()
	e.m = model.New(e.Config, kernels.NewPool(o.Threads))
	if err = e.loadSelector(); err != nil {
		return e, err
	}
	if err = e.wrapSelector(); err != nil {
		return e, err
	}
	if err = e.loadResident(ctx); err != nil {
		return e, err
	}
	if err = e.loadRows(ctx); err != nil {
		return e, err
	}
	if err = e.allocate(); err != nil {
		return e, err
	}
	debug.FreeOSMemory()
	e.LoadTime = time.Since(start)
	return e, nil
}

// Close stops all reads and gives the memory back.
func (e *Engine) Close() {
	if e.reader != nil {
		e.drain()
		e.reader.Close()
	}
	if e.m != nil && e.m.Pool != nil {
		e.m.Pool.Close()
	}
	for _, f := range e.frees {
		f()
	}
	e.frees = nil
}

// IO tells how rows are read.
func (e *Engine) IO() storage.Info { return e.reader.Info() }

// SelectorName is the selector in use, "" outside sparse mode.
func (e *Engine) SelectorName() string {
	if e.selector == nil {
		return ""
	}
	return e.selector.Name()
}

// Reset forgets the sequence. Resident rows stay.
func (e *Engine) Reset() { e.rewind(0) }

// rewind forgets all but the first n tokens.
func (e *Engine) rewind(n int) { e.kv.Len, e.seq = n, e.seq[:n] }

// Len is the number of tokens in the sequence, Context the most it can have.
func (e *Engine) Len() int     { return e.kv.Len }
func (e *Engine) Context() int { return e.kv.Capacity }

func threadCount(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// chooseSelector checks the name against what the bundle has; "" and "auto" take the best that was measured when the bundle was
// made, with or without a limit to what is read, or else its first.
func chooseSelector(b *bundle.Bundle, name string, limited bool) (string, error) {
	s := b.Manifest.Sparse
	auto := name == "" || name == "auto"
	switch {
	case s == nil && auto:
		return "", nil
	case s == nil:
		return "", format.Inputf("--selector %s: the bundle %s is a dense one and has none", name, b.Dir)
	case auto && len(s.Selectors) > 0:
		return s.Best(limited), nil
	}
	for _, have := range s.Selectors {
		if have == name {
			return name, nil
		}
	}
	return "", format.Inputf("--selector %s: the bundle %s has %v", name, b.Dir, s.Selectors)
}

func (e *Engine) loadSelector() (err error) {
	if e.Plan.Mode != ModeSparse {
		return nil
	}
	if e.selector, err = predictor.Open(e.Bundle, e.opts.Selector, e.Plan.Dense); err != nil {
		return err
	}
	if e.Bundle.Has(bundle.MemberMeans) {
		if e.means, err = predictor.LoadMeans(e.Bundle.Path(bundle.MemberMeans), e.opts.Selector, e.Config, e.Plan.Dense); err != nil {
			return err
		}
	}
	if e.gate0, _ = e.selector.(gate0Namer); e.gate0 == nil {
		return nil
	}
	h := e.Config.Hidden
	f := func() []float32 { return make([]float32, h) }
	e.features = predictor.Features{Embed: f(), AttnOut: f(), MLPIn: f(), Resid: f()}
	return nil
}

// halves allocates float16 elements outside the Go heap for the life of the engine.
func (e *Engine) halves(n int) []uint16 {
	b, free, err := storage.AllocAligned(2 * n)
	if err != nil {
		panic(err) // caught by allocFailed
	}
	e.frees = append(e.frees, free)
	return kernels.BytesU16(b)[:n]
}

// allocFailed turns a failed mapping into an error that says what did not fit.
func allocFailed(err *error) {
	if r := recover(); r != nil {
		cause, ok := r.(error)
		if _, bug := r.(runtime.Error); !ok || bug {
			panic(r)
		}
		*err = format.Fitf("the system does not give the memory that was planned: %w", cause)
	}
}

func (e *Engine) loadResident(ctx context.Context) (err error) {
	defer allocFailed(&err)
	path := e.Bundle.Path(bundle.MemberResident)
	t, err := tensors.Open(path)
	if err != nil {
		return err
	}
	defer t.Close()
	f, err := os.Open(path)
	if err != nil {
		return format.IOf("%s: %w", path, err)
	}
	defer f.Close()
	defer e.forgetPages(bundle.MemberResident) // the checking of checksums does so too: the later one counts
	return e.m.Load(&interruptible{model.FileSource{T: t, F: f}, ctx}, e.halves, true)
}

// interruptible ends the loading of matrices when ctx is done.
type interruptible struct {
	model.FileSource
	ctx context.Context
}

func (s *interruptible) Halves(dst []uint16, name string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	return s.FileSource.Halves(dst, name)
}

// loadRows reads the layers that stay in memory and sets up the others.
func (e *Engine) loadRows(ctx context.Context) (err error) {
	defer allocFailed(&err)
	c, g, d := e.Config, e.geometry, e.Plan.Dense
	e.dense, e.sparse = make([]model.Rows, c.Layers), make([]*sparseLayer, c.Layers)
	if !g.Trailer {
		if err := e.loadRowCRC(); err != nil {
			return err
		}
	}
	var load, rest []int
	for l := range c.Layers {
		if l < d {
			load = append(load, l)
		} else {
			rest = append(rest, l)
		}
	}
	s, err := newStreamer(e.reader, g, streamBuffers(e.Plan.Mode), e.m.Pool, e.checkRecord)
	if err != nil {
		return format.Fitf("%w", err)
	}
	total := int64(len(load))*int64(g.Neurons) + int64(len(rest))*int64(e.Plan.Rows)
	s.rows(load, 0, g.Neurons)
	err = e.readDense(ctx, s, 0, total)
	s.stop()
	if err == nil {
		s.rows(rest, 0, e.Plan.Rows)
		err = e.readDense(ctx, s, int64(len(load))*int64(g.Neurons), total)
		s.stop()
	}
	if err != nil {
		s.free()
		return err
	}
	if len(rest) == 0 {
		s.free()
		return nil
	}
	s.rows(rest, e.Plan.Rows, g.Neurons)
	e.stream = s
	e.frees = append(e.frees, s.free)
	if e.Plan.Mode != ModeSparse {
		return nil
	}
	e.chooser = resident.Chooser{KMax: e.Plan.KMax, Margin: e.opts.Margin, Cap: -1}
	if e.Plan.ReadCap > 0 {
		e.chooser.Cap = e.Plan.ReadCap
	}
	landing := [][]byte{s.mem}
	for _, l := range rest {
		if pins := len(e.selector.Pins(l)); pins > e.Plan.KMax {
			return format.Inputf("--k-max %d: layer %d has %d pinned neurons, which must fit", e.Plan.KMax, l, pins)
		}
		slots, free, err := storage.AllocAligned(e.Plan.KMax * g.Stride)
		if err != nil {
			return format.Fitf("%w", err)
		}
		e.frees = append(e.frees, free)
		e.sparse[l] = e.newSparseLayer(l, e.Plan.KMax, slots)
		landing = append(landing, slots)
	}
	_ = e.reader.Register(landing) // refused where the locked-memory limit is short, as it is for most users: IO says so
	return nil
}

// readDense copies the streamer's rows into memory without their trailers. done and total are rows, for the progress.
func (e *Engine) readDense(ctx context.Context, s *streamer, done, total int64) error {
	g := e.geometry
	row := g.RowBytes / 2
	s.start(1)
	for range s.total() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, first, rows, err := s.next()
		if err != nil {
			return err
		}
		if first == 0 {
			e.dense[l] = model.Rows{Mem: e.halves(s.to * row), Stride: row, N: s.to}
		}
		for n := range rows.N {
			copy(e.dense[l].Mem[(first+n)*row:(first+n+1)*row], rows.Mem[n*rows.Stride:])
		}
		done += int64(rows.N)
		if e.opts.Progress != nil {
			e.opts.Progress(done*int64(g.Stride), total*int64(g.Stride))
		}
	}
	return nil
}

func (e *Engine) loadRowCRC() error {
	path := e.Bundle.Path(bundle.MemberRowsCRC)
	b, err := os.ReadFile(path)
	if err != nil {
		return format.IOf("%s: %w", path, err)
	}
	n := e.geometry.Neurons * e.geometry.Layers
	if len(b) != 4*n {
		return format.Corruptf("%s: %d bytes, want %d", path, len(b), 4*n)
	}
	e.rowCRC = make([]uint32, n)
	for i := range e.rowCRC {
		e.rowCRC[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return nil
}

// allocate makes the working memory of the plan.
func (e *Engine) allocate() (err error) {
	defer allocFailed(&err)
	c, g := e.Config, e.geometry
	// Outside the Go heap: a large heap lets as large a share of it in garbage gather between collections.
	e.kv = model.NewKVIn(c, c.Layers, e.Plan.Context, e.halves(int(model.KVBytes(c, c.Layers, e.Plan.Context, false)/2)))
	e.batch, e.step1 = e.m.NewBatch(e.Plan.Microbatch), e.m.NewStep(e.Plan.Context)
	e.x, e.xs = make([]float32, c.Hidden), make([]float32, e.Plan.Microbatch*c.Hidden)
	e.logits, e.scores = make([]float32, c.Vocab), make([]float32, g.Neurons)
	e.ids1, e.seq = make([]int32, 1), make([]int32, 0, e.Plan.Context)
	e.denseOff, e.streamOff = make([]int, g.Neurons), make([]int, chunkNeurons(g))
	for i := range e.denseOff {
		e.denseOff[i] = i * g.RowBytes / 2
	}
	for i := range e.streamOff {
		e.streamOff[i] = i * g.Stride / 2
	}
	return nil
}
