package ladder

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/eval"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

// Options say what is measured.
type Options struct {
	Bundles   []string // of one model; each K_max is measured with the bundle made for it, or the nearest
	Dense     []int    // dense prefixes; none: the first bundle's default
	KMax      []int    // none, and no Sparsity: the bundles' own
	Sparsity  []float64
	Selectors []string  // none or "all": the best possible choice and all that the bundles have
	Perfect   bool      // selectors whose ids can be given also with the right ones
	Budgets   []Budget  // of what is read, besides no limit
	Margins   []float32 // in scores; none: 0

	Means string // file whose means stand in for what is left out; "" the bundles' own, NoMeans none

	Device bool // by the kernels of the token loop: slower, and the figures of nprun eval bit for bit

	Text    string    // file; "" leaves perplexity out
	Given   [][]int32 // instead of a text: windows of tokens
	Window  int       // 0: 512, at most the model's context
	Windows int       // 0 is all
	BOS     bool

	HellaSwag string // file of items; "" leaves them out
	Shots     string // file of examples
	NShots    []int
	Items     int // 0 is all
}

// NoMeans leaves a bundle's means unused.
const NoMeans = "none"

const (
	defaultWindow = 512
	maxText       = 256 << 20
	fewTokens     = 2000 // below this a perplexity says little
	groupMost     = 512 << 20
	groupMin      = 16 << 20
	maxShots      = 1000
)

// Run measures the ladder. What is finished stays in e.Work and is not measured again.
func Run(ctx context.Context, e *stage.Env, o Options) (*Report, error) {
	bs, err := openBundles(o.Bundles)
	if err != nil {
		return nil, err
	}
	rungs, warnings, err := rungs(bs, o)
	if err != nil {
		return nil, err
	}
	l := &run{e: e, o: o, bs: bs, rungs: rungs, report: &Report{Warnings: warnings}}
	if err := l.load(); err != nil {
		return nil, err
	}
	for _, w := range l.report.Warnings {
		e.Warn("%s", w)
	}
	if err := e.Lock(); err != nil {
		return nil, err
	}
	defer e.Unlock()
	if err := l.states(); err != nil {
		return nil, err
	}
	if err := l.measure(ctx); err != nil {
		return nil, err
	}
	return l.summary()
}

// openBundles opens bundles that must hold one model.
func openBundles(dirs []string) ([]*bundle.Bundle, error) {
	var bs []*bundle.Bundle
	for _, dir := range dirs {
		b, err := bundle.Open(dir)
		if err != nil {
			return nil, err
		}
		if b.Manifest.Sparse == nil || len(b.Manifest.Sparse.Selectors) == 0 {
			return nil, format.Hint(format.Inputf("%s: a dense bundle, which has no selector to measure", dir), "prepare one without --dense")
		}
		for _, name := range []string{bundle.MemberRows, bundle.MemberResident, bundle.MemberTokenizer} {
			this, _ := b.Manifest.Member(name)
			if len(bs) > 0 {
				if first, _ := bs[0].Manifest.Member(name); this.SHA256 != first.SHA256 {
					return nil, format.Inputf("%s: its %s is not that of %s: bundles of one model can be measured together", dir, name, bs[0].Dir)
				}
			}
		}
		bs = append(bs, b)
	}
	if len(bs) == 0 {
		return nil, format.Inputf("no bundle given")
	}
	return bs, nil
}

// run is one call of Run.
type run struct {
	e      *stage.Env
	o      Options
	bs     []*bundle.Bundle
	rungs  []Rung
	report *Report

	strips []*strip
	text   any // what the figures of the text depend on
	asked  []*asked
	dense  *state
	of     []*state // per rung
}

// asked is the items behind one number of shots.
type asked struct {
	shots  int
	prefix []*strip
	strips []*strip
	qs     []question
	key    any
	dense  *state
	of     []*state // per rung
}

// load reads text and items and cuts them.
func (l *run) load() error {
	o, b := l.o, l.bs[0]
	m := &b.Manifest.Model
	p := &l.report.Protocol
	p.Layers, p.Neurons, p.RowStride, p.Device = m.Layers, m.Intermediate, b.Manifest.Rows.Stride, o.Device
	for _, b := range l.bs {
		p.Bundles = append(p.Bundles, filepath.Base(filepath.Clean(b.Dir)))
	}
	tok, err := tokenizer.Load(b.Path(bundle.MemberTokenizer))
	if err != nil {
		return err
	}
	switch {
	case o.Given != nil:
		l.loadGiven()
	case o.Text != "":
		if err := l.loadText(tok); err != nil {
			return err
		}
	}
	if o.HellaSwag != "" {
		return l.loadItems(tok)
	}
	return nil
}

func (l *run) loadText(tok *tokenizer.Tokenizer) error {
	o, b := l.o, l.bs[0]
	m, p := &b.Manifest.Model, &l.report.Protocol
	if o.Window == 0 {
		if o.Window = defaultWindow; m.MaxPositions > 0 {
			o.Window = min(o.Window, m.MaxPositions)
		}
	}
	if m.MaxPositions > 0 && o.Window > m.MaxPositions || o.Window < 2 {
		return format.Inputf("--context %d: want 2 to the model's %d", o.Window, m.MaxPositions)
	}
	raw, err := format.ReadFile(o.Text, maxText)
	if err != nil {
		return err
	}
	if !utf8.Valid(raw) {
		return format.Inputf("%s: not UTF-8", o.Text)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(raw))
	for _, b := range l.bs {
		if b.Manifest.CalibratedOn(hash) {
			l.warn("%s: the bundle was calibrated on this text: on others it does less well", b.Dir)
		}
	}
	var bos []int32
	if o.BOS {
		if m.BOS < 0 {
			return format.Inputf("--bos: the model has no BOS token")
		}
		bos = []int32{int32(m.BOS)}
	}
	ids := tok.Encode(eval.Newlines.Replace(string(raw)), false)
	for _, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return format.Inputf("%s: the tokenizer gives token %d, the model has %d", b.Dir, id, m.Vocab)
		}
	}
	l.strips = windows(ids, o.Window, o.Windows, bos)
	p.TextSHA256, p.Tokens, p.Window, p.Windows, p.BOS = hash, len(ids), o.Window, len(l.strips), o.BOS
	for _, st := range l.strips {
		p.Scored += len(st.rows)
	}
	switch {
	case p.Scored == 0:
		return format.Inputf("%s: %d tokens, of which none can be scored", o.Text, len(ids))
	case o.Windows > len(l.strips):
		l.warn("%s has %d windows of %d tokens, not %d", o.Text, len(l.strips), o.Window, o.Windows)
	}
	if p.Scored < fewTokens {
		l.warn("%d scored tokens are too few to tell selectors apart that differ by less than a few percent", p.Scored)
	}
	l.text = map[string]any{"text": hash, "window": o.Window, "bos": o.BOS}
	return nil
}

// loadGiven takes the windows that were given.
func (l *run) loadGiven() {
	p, hash := &l.report.Protocol, sha256.New()
	for _, ids := range l.o.Given {
		_ = binary.Write(hash, binary.LittleEndian, append([]int32{int32(len(ids))}, ids...)) // a hash takes everything
		l.strips = append(l.strips, windows(ids, len(ids), 1, nil)...)
		p.Window, p.Tokens = max(p.Window, len(ids)), p.Tokens+len(ids)
	}
	p.TextSHA256, p.Windows = fmt.Sprintf("%x", hash.Sum(nil)), len(l.strips)
	for _, st := range l.strips {
		p.Scored += len(st.rows)
	}
	l.text = map[string]any{"given": p.TextSHA256}
}

func (l *run) loadItems(tok *tokenizer.Tokenizer) error {
	o, m := l.o, &l.bs[0].Manifest.Model
	items, err := eval.LoadHellaSwag(o.HellaSwag)
	if err != nil {
		return err
	}
	if o.Items > len(items) {
		l.warn("%s has %d items, not %d", o.HellaSwag, len(items), o.Items)
	}
	if o.Items > 0 {
		items = items[:min(o.Items, len(items))]
	}
	hash, err := stage.FileHash(o.HellaSwag)
	if err != nil {
		return err
	}
	var shots []eval.Item
	shotsHash := ""
	if o.Shots != "" {
		if shots, err = eval.LoadHellaSwag(o.Shots); err != nil {
			return err
		}
		if shotsHash, err = stage.FileHash(o.Shots); err != nil {
			return err
		}
	}
	ns := o.NShots
	if len(ns) == 0 {
		ns = []int{0}
	}
	encode := func(s string) []int32 { return tok.Encode(s, false) }
	for _, n := range ns {
		if n < 0 || n > min(len(shots), maxShots) {
			return format.Hint(format.Inputf("%d shots: %d examples are there", n, len(shots)), "name a file of examples with --shots")
		}
		a := &asked{shots: n, key: map[string]any{"items": hash, "shots": n}}
		if n > 0 {
			a.key = map[string]any{"items": hash, "shots": n, "from": shotsHash}
		}
		a.prefix, a.strips, a.qs = questions(encode, items, shots[:n], m.MaxPositions)
		l.asked = append(l.asked, a)
	}
	return nil
}

func (l *run) warn(f string, a ...any) {
	l.report.Warnings = append(l.report.Warnings, fmt.Sprintf(f, a...))
}

// states opens what earlier runs left.
func (l *run) states() (err error) {
	open := func(data any) (dense *state, of []*state, err error) {
		sparse := data
		if l.o.Device {
			sparse = map[string]any{"on": data, "arithmetic": "device"}
		}
		if l.o.Means != "" {
			sum := l.o.Means
			if sum != NoMeans {
				if sum, err = stage.FileHash(l.o.Means); err != nil {
					return nil, nil, err
				}
			}
			sparse = map[string]any{"on": sparse, "means": sum}
		}
		if dense, err = openState(l.e.Work, l.bs, Rung{Selector: DenseName}, data); err != nil {
			return nil, nil, err
		}
		for _, r := range l.rungs {
			s, err := openState(l.e.Work, l.bs, r, sparse)
			if err != nil {
				return nil, nil, err
			}
			of = append(of, s)
		}
		return dense, of, nil
	}
	if l.text != nil {
		if l.dense, l.of, err = open(l.text); err != nil {
			return err
		}
	}
	for _, a := range l.asked {
		if a.dense, a.of, err = open(a.key); err != nil {
			return err
		}
	}
	return nil
}

// open tells whether something is left to measure.
func (l *run) open() bool {
	for _, s := range append(l.of, l.dense) {
		if s != nil && len(s.Windows) < len(l.strips) {
			return true
		}
	}
	for _, a := range l.asked {
		for _, s := range append(a.of, a.dense) {
			if len(s.Items) < len(a.qs) {
				return true
			}
		}
	}
	return false
}

// measure does what is left.
func (l *run) measure(ctx context.Context) error {
	if !l.open() {
		return nil
	}
	longest, positions, layers := 1, 1, 1
	see := func(strips []*strip) {
		for _, st := range strips {
			longest, positions = max(longest, len(st.ids), len(st.rows)), max(positions, st.reach())
		}
	}
	see(l.strips)
	for _, a := range l.asked {
		see(a.strips)
		see(a.prefix)
		if len(a.prefix) > 0 { // items continue the shots
			layers = l.bs[0].Manifest.Model.Layers
		}
	}
	f, sels, group, err := l.prepare(ctx, longest, layers, positions)
	if err != nil {
		return err
	}
	defer f.w.close()
	p := stage.NewProgress(l.e, "eval")
	if l.text != nil {
		r := &runner{f: f, rungs: l.rungs, sels: sels, group: group, strips: l.strips}
		if err := r.text(ctx, l.dense, l.of, p); err != nil {
			return err
		}
	}
	for _, a := range l.asked {
		r := &runner{f: f, rungs: l.rungs, sels: sels, group: group, strips: a.strips}
		if err := r.items(ctx, a.prefix, a.qs, a.dense, a.of, p); err != nil {
			return err
		}
	}
	return nil
}

// prepare loads weights and selectors and makes the working memory, within the budget.
func (l *run) prepare(ctx context.Context, longest, layers, positions int) (*forward, map[selKey]*selector, int64, error) {
	b := l.bs[0]
	c, g := &b.Manifest.Model, b.Manifest.Rows
	first := c.Layers
	for _, r := range l.rungs {
		first = min(first, r.Dense)
	}
	sels := map[selKey]*selector{}
	held := int64(0)
	for _, r := range l.rungs {
		if r.Selector == BestName || sels[r.key()] != nil {
			continue
		}
		s, err := loadSelector(ctx, l.bs[r.bundle], r.Selector, first, l.o.Means)
		if err != nil {
			return nil, nil, 0, err
		}
		sels[r.key()] = s
		if held += s.Bytes(); s.means != nil {
			held += s.means.Bytes()
		}
	}
	m := model.New(c, l.e.Pool)
	work := forwardBytes(&weights{c: c, m: m}, longest, layers, positions)
	passes := int64(len(l.rungs)) * int64(c.Layers) * int64(longest) * int64(c.Intermediate/8+12)
	fixed := model.ResidentBytes(c) + held + work + passes + groupMin
	if need := fixed + layerBytes(g); l.e.Memory > 0 && need > l.e.Memory {
		return nil, nil, 0, format.Hint(format.Fitf("eval needs %s: weights outside the MLPs %s, selectors %s, working memory %s, one layer %s, shared results %s; --memory is %s",
			format.IEC(need), format.IEC(model.ResidentBytes(c)), format.IEC(held), format.IEC(work+passes), format.IEC(layerBytes(g)), format.IEC(groupMin), format.IEC(l.e.Memory)),
			"raise --memory, or shorten --context")
	}
	room := int64(groupMost) * 8
	if l.e.Memory > 0 {
		room = l.e.Memory - fixed
	}
	w, err := loadWeights(ctx, b, l.e.Pool, room)
	if err != nil {
		return nil, nil, 0, err
	}
	if w.keep {
		room -= int64(c.Layers) * layerBytes(g)
	} else {
		room -= layerBytes(g)
		l.e.Note("the layers do not fit in --memory together: each is read when it is needed")
	}
	f := newForward(w, longest, layers, positions)
	if l.o.Device {
		f.device = newDevice(w, longest, positions)
	}
	return f, sels, min(groupMost, groupMin+room/2), nil
}

// summary makes the report of what the states hold.
func (l *run) summary() (*Report, error) {
	g := l.bs[0].Manifest.Rows
	all := append([]Rung{{Selector: DenseName}}, l.rungs...)
	for i, r := range all {
		res := Result{Rung: r}
		if i > 0 {
			res.Sparsity = 1 - float64(r.KMax)/float64(g.Neurons)
			res.Bundle = filepath.Base(filepath.Clean(l.bs[r.bundle].Dir))
		}
		if l.text != nil {
			s := l.dense
			if i > 0 {
				s = l.of[i-1]
			}
			res.text(len(l.strips), s, l.dense, g)
		}
		for _, a := range l.asked {
			s := a.dense
			if i > 0 {
				s = a.of[i-1]
			}
			if err := res.items(len(a.qs), a.shots, s, a.dense); err != nil {
				return nil, err
			}
		}
		l.report.Rungs = append(l.report.Rungs, res)
	}
	return l.report, nil
}
