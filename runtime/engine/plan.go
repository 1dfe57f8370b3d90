package engine

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

// The modes of --mode.
const (
	ModeAuto     = "auto"
	ModeResident = "resident"
	ModeStream   = "stream"
	ModeSparse   = "sparse"
)

// DefaultContext is the longest sequence that is planned for when none is asked for.
const DefaultContext = 2048

// slack is what the plan leaves free for what it does not count one by one: stacks and heap growth between
// collections, and for each thread the packing buffers of the matrix products. Runs left at least 5 MiB of 6 unused.
const (
	slack       = 5 << 20
	threadSlack = 512 << 10
)

// Part is one line of a plan.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Plan says what a mode keeps in memory and what it reads.
type Plan struct {
	Mode          string `json:"mode"`
	Selector      string `json:"selector,omitempty"`       // of sparse mode
	Dense         int    `json:"dense_layers"`             // layers whose MLP is in memory: d in sparse mode
	Rows          int    `json:"resident_rows,omitempty"`  // stream: of every later layer, how many of its first rows are in memory
	KMax          int    `json:"k_max"`                    // of each sparse layer; 0 in other modes
	ReadCap       int    `json:"rows_per_token,omitempty"` // most rows read per sparse layer and token; 0 is no limit
	Context       int    `json:"context"`
	Microbatch    int    `json:"microbatch"` // tokens of a prompt that share one pass over the streamed layers
	Budget        int64  `json:"budget_bytes"`
	BudgetSource  string `json:"budget_source"`
	Parts         []Part `json:"parts"`
	Total         int64  `json:"total_bytes"`
	ReadsPerToken int64  `json:"read_bytes_per_token_at_most"` // once the slots are full: every row of the token read, or as many as the limit lets in
	Weights       int64  `json:"model_bytes"`                  // all weights of the model in float16
	Note          string `json:"note,omitempty"`
}

// fits reports whether the plan stays inside the budget.
func (p *Plan) fits() bool { return p.Total <= p.Budget }

// Arithmetic is the plan as text, one line per part.
func (p *Plan) Arithmetic() string {
	var b strings.Builder
	for _, x := range p.Parts {
		fmt.Fprintf(&b, "%10s  %s\n", size(x.Bytes), x.Name)
	}
	fmt.Fprintf(&b, "%10s  in all, budget %s (%s)\n", size(p.Total), size(p.Budget), p.BudgetSource)
	return b.String()
}

// oneLine is the arithmetic for an error message.
func (p *Plan) oneLine() string {
	var s []string
	for _, x := range p.Parts {
		s = append(s, x.Name+" "+size(x.Bytes))
	}
	return strings.Join(s, " + ") + " = " + size(p.Total)
}

// planner holds what every plan of a bundle needs.
type planner struct {
	b       *bundle.Bundle
	c       *checkpoint.Config
	g       bundle.Geometry
	o       Options
	base    int64 // resident memory of the process before the weights
	budget  int64
	source  string
	threads int
	members map[string][]layerTensor // of centroids and predictor
}

// layerTensor is the size of one tensor of a member and the layer it belongs to, -1 for all.
type layerTensor struct {
	layer int
	bytes int64
}

// newPlanner checks the options against the bundle. The tokenizer must be loaded: it is part of the base.
func newPlanner(b *bundle.Bundle, o Options, threads int) (p *planner, err error) {
	if o.Selector, err = chooseSelector(b, o.Selector, o.ReadBudget > 0 || o.ReadCap > 0); err != nil {
		return nil, err
	}
	p = &planner{b: b, c: &b.Manifest.Model, g: b.Manifest.Rows, o: o, threads: threads, members: map[string][]layerTensor{}}
	switch n := p.c.Layers; {
	case o.Dense > n:
		return nil, format.Inputf("--dense-layers %d: the model has %d layers", o.Dense, n)
	case o.Mode == ModeResident && o.Dense != 0 && o.Dense != n:
		return nil, format.Inputf("--dense-layers %d: resident mode keeps all %d layers in memory; --mode stream and --mode sparse keep fewer", o.Dense, n)
	case o.KMax > p.g.Neurons:
		return nil, format.Inputf("--k-max %d: a layer has %d neurons", o.KMax, p.g.Neurons)
	case o.ReadBudget > 0 && o.ReadBudget < int64(n)*int64(p.g.Stride):
		return nil, format.Inputf("--read-budget %s: a row of each of the model's %d layers takes %s", size(o.ReadBudget), n, size(int64(n)*int64(p.g.Stride)))
	case o.Context > p.c.MaxPositions:
		return nil, format.Inputf("--context %d: the model is made for at most %d tokens", o.Context, p.c.MaxPositions)
	}
	p.base, _ = RSS()
	free, source := AvailableMemory()
	p.budget, p.source = budget(o.Memory, p.base, free, source)
	if b.Manifest.Sparse == nil {
		return p, nil
	}
	for _, name := range []string{bundle.MemberCentroids, bundle.MemberPredictor, bundle.MemberLookahead,
		bundle.MemberPaperRows, bundle.MemberJoint, bundle.MemberJointRows, bundle.MemberMeans} {
		if !b.Has(name) {
			continue
		}
		f, err := tensors.Open(b.Path(name))
		if err != nil {
			return nil, err
		}
		for _, t := range f.Names() {
			if name == bundle.MemberMeans && !strings.Contains(t, "."+o.Selector+".") {
				continue
			}
			info, _ := f.Info(t)
			p.members[name] = append(p.members[name], layerTensor{layerOf(t), info.End - info.Begin})
		}
		f.Close()
	}
	return p, nil
}

// budget is what the process may hold: what was asked for, but no more than there is; nine tenths of that when nothing
// was asked for. base is what it holds already.
func budget(asked, base, free int64, source string) (int64, string) {
	switch {
	case asked <= 0:
		return base + free*9/10, "nine tenths of " + source
	case asked > base+free:
		return base + free, source + ", less than --memory"
	}
	return asked, "--memory"
}

// layerOf finds the layer in names such as head.gate.5.bias or freq.up.3; tensors of no layer give -1.
func layerOf(name string) int {
	w := strings.Split(name, ".")
	if w[0] == "block" || w[0] == "proj" {
		return -1
	}
	for _, s := range w[1:] {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	return -1
}

// memberBytes is what a member's tensors of no layer or of layers ≥ first hold.
func (p *planner) memberBytes(name string, first int) (n int64) {
	for _, t := range p.members[name] {
		if t.layer < 0 || t.layer >= first {
			n += t.bytes
		}
	}
	return n
}

// share tells what part of the model's float16 weights a member's tensors of layers ≥ first are.
func (p *planner) share(name string, first int) string {
	return fmt.Sprintf(" (%.2f %% of the model)", 100*float64(p.memberBytes(name, first))/float64(2*p.c.Params()))
}

// plan lays out one mode with a given number of layers in memory, context and micro-batch.
func (p *planner) plan(mode string, dense, rows, context, micro int) *Plan {
	c, g := p.c, p.g
	m := model.New(c, nil)
	pl := &Plan{Mode: mode, Dense: dense, Rows: rows, Context: context, Microbatch: micro, Budget: p.budget, BudgetSource: p.source,
		Weights: model.ResidentBytes(c) + int64(c.Layers)*int64(g.Neurons)*int64(g.RowBytes)}
	add := func(name string, n int64) {
		if n > 0 {
			pl.Parts = append(pl.Parts, Part{name, n})
			pl.Total += n
		}
	}
	add("program and tokenizer", p.base)
	add("attention, norms, embedding, head", model.ResidentBytes(c))
	denseName := fmt.Sprintf("MLPs of %d layers", dense)
	if dense == 1 {
		denseName = "MLP of 1 layer"
	}
	rest := c.Layers - dense
	add(denseName, int64(dense)*int64(g.Neurons)*int64(g.RowBytes))
	add(fmt.Sprintf("%d rows of %d layers", rows, rest), int64(rest)*int64(rows)*int64(g.RowBytes))
	if mode == ModeSparse {
		k := p.kMax()
		pl.KMax, pl.Selector = k, p.o.Selector
		add(fmt.Sprintf("%d slots × %d sparse layers", k, rest), int64(rest)*int64(k)*int64(g.Stride))
		add("slot maps and read lists", int64(rest)*(int64(k)*88+int64(g.Neurons)*5))
		switch p.o.Selector {
		case bundle.SelectorStatic:
			add("static scores", p.memberBytes(bundle.MemberCentroids, dense))
		case bundle.SelectorLookahead:
			// five vectors a layer are float16 in the file and float32 in memory, as are ten of working memory
			add("lookahead factors"+p.share(bundle.MemberLookahead, dense), p.memberBytes(bundle.MemberLookahead, dense)+int64(rest)*10*int64(g.Neurons)+40*int64(g.Neurons))
		case bundle.SelectorPaperPlus, bundle.SelectorCentroid:
			// of the centroids, layer 0's and the pins stay in memory; six vectors a layer are float32 there
			for _, m := range bundle.SelectorMembers(p.o.Selector) {
				if m != bundle.MemberCentroids {
					add(m+p.share(m, dense), p.memberBytes(m, dense))
				}
			}
			add("score rows' working memory", p.memberBytes(bundle.MemberCentroids, p.c.Layers)+int64(rest)*24*int64(g.Neurons))
		default:
			add("predictor"+p.share(bundle.MemberPredictor, dense), p.memberBytes(bundle.MemberPredictor, dense))
			add("centroids", p.memberBytes(bundle.MemberCentroids, dense))
		}
		if n := p.memberBytes(bundle.MemberMeans, dense); n > 0 { // means are float16 in the file and float32 in memory
			add("means of what is left out", n+int64(rest)*2*int64(g.Neurons))
		}
		rows := k
		if pl.ReadCap = p.readCap(rest); pl.ReadCap > 0 {
			rows = min(rows, pl.ReadCap)
		}
		pl.ReadsPerToken = int64(rest) * int64(rows) * int64(g.Stride)
	}
	if mode == ModeStream {
		pl.ReadsPerToken = int64(rest) * (g.LayerStride - int64(rows)*int64(g.Stride))
	}
	if !g.Trailer {
		add("row checksums", 4*int64(g.Neurons)*int64(g.Layers))
	}
	if rest > 0 {
		n := streamBuffers(mode)
		add(fmt.Sprintf("%d stream buffers", n), int64(n)*int64(chunkBytes(g)))
	}
	add(fmt.Sprintf("key-value cache for %d tokens", context), model.KVBytes(c, c.Layers, context, false))
	work := model.StepBytes(m, context) + model.BatchBytes(m, micro) + int64(micro)*int64(c.Hidden)*4 + int64(c.Vocab)*4
	work += int64(p.threads) * int64(model.QueryBlock) * int64(context) * 4
	add(fmt.Sprintf("working memory, %d tokens of a prompt at a time", micro), work)
	add("read staging", int64(p.staging()))
	add("slack", slack+threadSlack*int64(p.threads))
	return pl
}

// staging is how many bytes the reader keeps for reads that cannot land in place.
func (p *planner) staging() int {
	if p.o.Storage.Staging > 0 {
		return p.o.Storage.Staging
	}
	return min(max(64*p.g.Stride, 1<<20), 16<<20)
}

// readCap is how many rows each of rest sparse layers may read per token; 0 is no limit.
func (p *planner) readCap(rest int) int {
	if p.o.ReadBudget <= 0 || rest == 0 {
		return p.o.ReadCap
	}
	n := int(p.o.ReadBudget / (int64(rest) * int64(p.g.Stride)))
	if p.o.ReadCap > 0 {
		n = min(n, p.o.ReadCap)
	}
	return max(n, 1) // checked: a row of every layer fits
}

func (p *planner) kMax() int {
	if p.o.KMax > 0 {
		return p.o.KMax
	}
	return p.b.Manifest.Sparse.KMax
}

// microbatches are tried from the largest: each halving saves memory and costs another pass over the streamed layers.
var microbatches = []int{512, 256, 128, 64, 32, 16}

// best finds the plan of a mode that fits with the largest micro-batch, for a fixed number of layers in memory.
func (p *planner) best(mode string, dense int) *Plan {
	var last *Plan
	for _, context := range p.contexts() {
		for _, micro := range microbatches {
			if micro > context && micro != microbatches[len(microbatches)-1] {
				continue
			}
			if last = p.plan(mode, dense, 0, context, min(micro, context)); last.fits() {
				return p.noted(last)
			}
		}
	}
	return last
}

// noted says so in the plan when its context is shorter than usual.
func (p *planner) noted(pl *Plan) *Plan {
	if p.o.Context == 0 && pl.Context < p.contexts()[0] {
		pl.note(fmt.Sprintf("the context is %d tokens so that it fits; --context asks for more", pl.Context))
	}
	return pl
}

// note adds to what the user is told.
func (p *Plan) note(s string) {
	if p.Note != "" {
		p.Note += "; "
	}
	p.Note += s
}

// contexts are the lengths to try: the one asked for, or ever shorter ones.
func (p *planner) contexts() []int {
	if p.o.Context > 0 {
		return []int{p.o.Context}
	}
	all := []int{min(DefaultContext, p.c.MaxPositions)}
	for n := all[0] / 2; n >= 512; n /= 2 {
		all = append(all, n)
	}
	return all
}

// choose picks the plan for the options, or refuses with the arithmetic.
func (p *planner) choose() (*Plan, error) {
	n := p.c.Layers
	fixed := p.o.Dense > 0
	resident := p.best(ModeResident, n)
	switch p.o.Mode {
	case ModeResident:
		return p.accept(resident, "--mode stream or --mode sparse needs less")
	case ModeStream:
		if fixed {
			return p.accept(p.best(ModeStream, p.o.Dense), "lower --dense-layers, --context or raise --memory")
		}
		return p.accept(p.most(ModeStream, 0, n-1), "lower --context or raise --memory")
	case ModeSparse:
		return p.sparse(fixed)
	case "", ModeAuto:
		if resident.fits() && !fixed {
			return resident, nil
		}
		switch {
		case p.b.Manifest.Sparse != nil:
			return p.sparse(fixed)
		case fixed:
			return p.accept(p.best(ModeStream, p.o.Dense), "lower --dense-layers, --context or raise --memory")
		}
		return p.accept(p.most(ModeStream, 0, n-1), "lower --context or raise --memory")
	}
	return nil, format.Inputf("--mode %s: want auto, resident, stream or sparse", p.o.Mode)
}

// sparse plans sparse mode: d as asked for, else the largest d that fits, but no more than the bundle's default when
// sparse was asked for by name.
func (p *planner) sparse(fixed bool) (*Plan, error) {
	s, n := p.b.Manifest.Sparse, p.c.Layers
	switch {
	case s == nil:
		return nil, format.Hint(format.Inputf("%s: the bundle has no predictor and no centroids, so it cannot run sparse", p.b.Dir), "it runs with --mode resident or --mode stream; npprep prepare without --dense makes one that can")
	case fixed:
		return p.accept(p.best(ModeSparse, p.o.Dense), "lower --dense-layers, --context or raise --memory")
	}
	limit := n - 1
	if p.o.Mode == ModeSparse && s.DefaultDense > 0 {
		limit = min(limit, s.DefaultDense)
	}
	if p.o.Calibrated > 0 {
		limit = min(n-1, p.o.Calibrated)
	}
	hint := "lower --context or raise --memory"
	if p.most(ModeStream, 0, n-1).fits() {
		hint += ", or use --mode stream"
	}
	pl, err := p.accept(p.most(ModeSparse, 1, limit), hint)
	if err == nil && pl.Dense < s.DefaultDense {
		pl.note(fmt.Sprintf("d = %d, below the %d that the bundle was made for: the text will be worse than measured; more --memory holds more layers, --mode stream is exact", pl.Dense, s.DefaultDense))
	}
	return pl, err
}

// enoughTokens is a micro-batch with which computing a layer takes longer than reading it on the drives we know: a
// layer in memory is worth more than a larger one, and less than going below it, which reads the others again and again.
const enoughTokens = 128

// most finds the plan with the most layers in memory between lo and hi, of those with the longest context and a
// micro-batch that is large enough, or as large as fits; the one with lo when none fits. In sparse mode layers come before
// context until the dense prefix is the one that the bundle was made for.
func (p *planner) most(mode string, lo, hi int) *Plan {
	want, best := 0, (*Plan)(nil)
	if mode == ModeSparse {
		want = min(hi, p.b.Manifest.Sparse.DefaultDense)
	}
	for _, context := range p.contexts() {
		for _, micro := range microbatches {
			if micro > enoughTokens {
				continue
			}
			d := sort.Search(hi-lo+1, func(i int) bool { return !p.plan(mode, lo+i, 0, context, min(micro, context)).fits() })
			if d == 0 {
				continue
			}
			if best != nil && lo+d-1 <= best.Dense {
				break
			}
			for _, larger := range microbatches {
				if pl := p.plan(mode, lo+d-1, 0, context, min(larger, context)); pl.fits() {
					best = pl
					break
				}
			}
			break
		}
		if best != nil && best.Dense >= want {
			break
		}
	}
	if best != nil {
		return p.noted(p.level(best))
	}
	return p.best(mode, lo)
}

// level turns the whole layers that a stream plan keeps into the first rows of every layer, so that there is always something to
// compute while the drive reads and something to read while the processor computes. What does not come out even stays whole layers.
func (p *planner) level(pl *Plan) *Plan {
	n, m, chunk := p.c.Layers, p.g.Neurons, chunkNeurons(p.g)
	held := pl.Dense * m
	rows := held / n / chunk * chunk
	if pl.Mode != ModeStream || rows == 0 {
		return pl
	}
	return p.plan(ModeStream, (held-n*rows)/(m-rows), rows, pl.Context, pl.Microbatch)
}

// Held says which MLP rows are in memory, in words.
func (p *Plan) Held(layers, neurons int) string {
	whole := fmt.Sprintf("%d of %d layers' MLPs", p.Dense, layers)
	switch {
	case p.Rows == 0:
		return whole
	case p.Dense == 0:
		return fmt.Sprintf("%d of %d neurons of every layer's MLP", p.Rows, neurons)
	}
	return fmt.Sprintf("%s and %d of %d neurons of the others", whole, p.Rows, neurons)
}

func (p *planner) accept(pl *Plan, hint string) (*Plan, error) {
	if pl.fits() {
		return pl, nil
	}
	return nil, format.Hint(format.Fitf("%s mode needs %s, the budget is %s (%s): %s", pl.Mode, size(pl.Total), size(pl.Budget), pl.BudgetSource, pl.oneLine()), hint)
}

// Plans lays out every mode of a bundle for `nprun plan`.
func Plans(b *bundle.Bundle, o Options) (all []*Plan, chosen *Plan, err error) {
	t, err := tokenizer.Load(b.Path(bundle.MemberTokenizer)) // so that the base is that of a run
	if err != nil {
		return nil, nil, err
	}
	defer runtime.KeepAlive(t)
	debug.FreeOSMemory()
	p, err := newPlanner(b, o, threadCount(o.Threads))
	if err != nil {
		return nil, nil, err
	}
	n := p.c.Layers
	all = append(all, p.best(ModeResident, n), p.most(ModeStream, 0, n-1))
	if b.Manifest.Sparse != nil {
		o2 := p.o
		p.o.Mode = ModeSparse
		if pl, err := p.sparse(o.Dense > 0); err == nil {
			all = append(all, pl)
		} else {
			all = append(all, p.best(ModeSparse, max(1, o.Dense)))
		}
		p.o = o2
	}
	chosen, err = p.choose()
	return all, chosen, err
}
