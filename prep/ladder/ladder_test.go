package ladder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	assemble "neuroprefetcher/prep/bundle"
	"neuroprefetcher/prep/capture"
	"neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/moments"
	"neuroprefetcher/prep/regress"
	"neuroprefetcher/prep/repack"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/threshold"
	"neuroprefetcher/prep/train"
	"neuroprefetcher/prep/vocab"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/eval"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

const (
	tiny    = "../../pipelines/tiny/checkpoint"
	heldout = "../../pipelines/tiny/heldout.txt"
	kMax    = 150 // of 448: little enough that every selector loses something
)

var prepared struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(prepared.dir)
	os.Exit(code)
}

func skip(_ stage.Report, err error) error { return err }

// tinyBundle prepares the tiny model once for all tests, with little text.
func tinyBundle(t *testing.T) string {
	t.Helper()
	p := &prepared
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "ladder"); p.err != nil {
			return
		}
		c, err := checkpoint.Open(tiny)
		if err != nil {
			p.err = err
			return
		}
		defer c.Close()
		e := &stage.Env{Work: filepath.Join(p.dir, "work"), Seed: 1, Quiet: true, Log: io.Discard, Pool: kernels.NewPool(0)}
		defer e.Pool.Close()
		texts, cfg := []string{"../../pipelines/tiny/calibration.txt"}, c.Config
		joint := train.Options{Config: cfg, Epochs: 1, Joint: true}
		for _, run := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return skip(repack.Run(ctx, e, repack.Options{Checkpoint: c})) },
			func(ctx context.Context) error {
				return skip(threshold.Run(ctx, e, threshold.Options{Checkpoint: c, Texts: texts, Tokens: 2048, Window: 256}))
			},
			func(ctx context.Context) error {
				return skip(capture.Run(ctx, e, capture.Options{Checkpoint: c, Texts: texts, Tokens: 2048, Window: 256, Density: 0.4}))
			},
			func(ctx context.Context) error {
				return skip(cluster.Run(ctx, e, cluster.Options{Config: cfg, Centroids: 16}))
			},
			func(ctx context.Context) error { return skip(train.Run(ctx, e, train.Options{Config: cfg, Epochs: 1})) },
			func(ctx context.Context) error {
				return skip(vocab.Run(ctx, e, vocab.Options{Checkpoint: c, Texts: texts, Centroids: 16, Dense: 2, Paper: true, Joint: true}))
			},
			func(ctx context.Context) error { return skip(train.Run(ctx, e, joint)) },
			func(ctx context.Context) error {
				return skip(moments.Run(ctx, e, moments.Options{Checkpoint: c, Texts: texts, Tokens: 2048, Window: 256, Lags: []int{regress.DefaultLag}}))
			},
			func(ctx context.Context) error {
				return skip(regress.Run(ctx, e, regress.Options{Checkpoint: c, Dense: 2}))
			},
			func(ctx context.Context) error {
				return skip(assemble.Run(ctx, e, assemble.Options{Checkpoint: c, Out: filepath.Join(p.dir, "bundle"), KMax: kMax, Tool: "test",
					Selectors: []string{bundle.SelectorLookahead, bundle.SelectorPaper, bundle.SelectorPaperPlus, bundle.SelectorCentroid, bundle.SelectorStatic}}))
			},
		} {
			if p.err = run(context.Background()); p.err != nil {
				return
			}
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return filepath.Join(p.dir, "bundle")
}

func env(t *testing.T, threads int) *stage.Env {
	e := &stage.Env{Work: t.TempDir(), Quiet: true, Log: io.Discard, Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	return e
}

func measure(t *testing.T, e *stage.Env, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDevicePath holds every predicted rung against the engine that reads rows from disk: by products over all tokens the
// same perplexity to four digits where a token's choice does not depend on the one before, to three where it does, and the
// same rows read but for the few choices that a last bit can turn; by the kernels of the token loop the same bits.
func TestDevicePath(t *testing.T) {
	dir := tinyBundle(t)
	o := Options{Bundles: []string{dir}, Dense: []int{2}, Text: heldout, Window: 64, Windows: 3, Budgets: []Budget{{Share: 0.1}}, Margins: []float32{0, 0.5}}
	r := measure(t, env(t, 0), o)
	o.Device = true
	exact := measure(t, env(t, 0), o)
	raw, err := os.ReadFile(heldout)
	if err != nil {
		t.Fatal(err)
	}
	run := func(eo engine.Options) (*eval.Perplexity, engine.Stats) {
		eo.Context, eo.Storage.Direct = 64, "off"
		e, err := engine.Open(context.Background(), dir, eo)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		p, err := eval.Run(context.Background(), e, e.Tokenizer.Encode(string(raw), false), eval.Protocol{Window: 64, MaxWindows: 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p, e.Stats()
	}
	seen := map[string]bool{}
	for i, x := range r.Rungs {
		if x.Choice == Perfect {
			continue
		}
		eo := engine.Options{Mode: engine.ModeResident}
		if x.Selector != DenseName {
			eo = engine.Options{Mode: engine.ModeSparse, Dense: x.Dense, KMax: x.KMax, Selector: x.Selector, ReadCap: x.ReadCap, Margin: x.Margin}
		}
		p, st := run(eo)
		near := 2e-4 * p.Perplexity
		if x.ReadCap > 0 || x.Margin > 0 {
			near *= 10
		}
		if math.Abs(p.Perplexity-x.Perplexity) > near || math.Abs(p.StdErr-x.StdErr) > 5*near || p.Scored != r.Protocol.Scored {
			t.Errorf("%s: perplexity %.6f ± %.4f, the engine has %.6f ± %.4f", x.Rung, x.Perplexity, x.StdErr, p.Perplexity, p.StdErr)
		}
		if reuse := 1 - float64(st.Read)/float64(max(1, st.Needed)); x.Selector != DenseName && math.Abs(reuse-x.Reuse) > 2e-3 {
			t.Errorf("%s: reuse %.4f, the engine has %.4f", x.Rung, x.Reuse, reuse)
		}
		y := exact.Rungs[i]
		if y.Perplexity != p.Perplexity || y.StdErr != p.StdErr {
			t.Errorf("%s: perplexity %v ± %v, the engine has %v ± %v", y.Rung, y.Perplexity, y.StdErr, p.Perplexity, p.StdErr)
		}
		if read := int64(math.Round(y.RowsPerToken * 3 * 62)); read != st.Read {
			t.Errorf("%s: %d rows read, the engine reads %d", y.Rung, read, st.Read)
		}
		seen[x.Selector] = true
	}
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.Manifest.Sparse.Selectors {
		if !seen[s] {
			t.Errorf("selector %s was not measured", s)
		}
	}
}

// TestOrder holds what must hold for any model: the best choice has the most importance of all, a cap is
// kept, perfect ids hold no less importance than predicted ones, and figures are within their ranges.
func TestOrder(t *testing.T) {
	r := measure(t, env(t, 0), Options{Bundles: []string{tinyBundle(t)}, Dense: []int{2}, Text: heldout, Window: 128, Windows: 3, Perfect: true, Budgets: []Budget{{Share: 0.1}}})
	by := map[string]Result{}
	for _, x := range r.Rungs {
		by[x.String()] = x
	}
	best := by[Rung{Selector: BestName, Choice: Perfect, Dense: 2, KMax: kMax}.String()]
	if best.Hits < 0.9999 || best.Perplexity == 0 {
		t.Errorf("best: %+v", best)
	}
	for _, x := range r.Rungs[1:] {
		if x.Recall > best.Recall+1e-9 || x.Recall <= 0 || x.Hits <= 0 || x.Hits > 1 || x.Agreement <= 0 || x.Agreement > 1 || x.Reuse < 0 || x.Reuse > 1 {
			t.Errorf("%s: %+v", x.Rung, x)
		}
		if x.ReadCap > 0 && x.RowsPerToken > float64(4*x.ReadCap) {
			t.Errorf("%s: %v rows per token", x.Rung, x.RowsPerToken)
		}
	}
	paper := Rung{Selector: bundle.SelectorPaper, Choice: Predicted, Dense: 2, KMax: kMax}
	told := paper
	told.Choice = Perfect
	if p, q := by[paper.String()], by[told.String()]; q.Recall < p.Recall || p.TopOne <= 0 || p.TopOne >= 1 || len(p.TopOneLayers) != 4 || q.TopOneLayers != nil {
		t.Errorf("paper: recall %v predicted, %v with right ids, %v of the ids right", p.Recall, q.Recall, p.TopOneLayers)
	}
	if x := by[Rung{Selector: bundle.SelectorLookahead, Choice: Predicted, Dense: 2, KMax: kMax}.String()]; x.Rank < 0.2 || x.Rank > 1 {
		t.Errorf("lookahead: rank correlation %v", x.RankLayers)
	}
}

// brute is one window, token by token, in the plainest way: sets sorted by importance, sums in float64.
func brute(t *testing.T, w *weights, ids, targets []int32, d, k int, choose func(l int, importance []float64, before map[int]bool) map[int]bool) (nll float64, reads int, recall float64) {
	c := w.c
	h, m := c.Hidden, c.Intermediate
	b, kv, x := w.m.NewBatch(1), model.NewKV(c, c.Layers, len(ids), false), make([]float32, c.Hidden)
	in := map[int]map[int]bool{}
	n := 0
	for i, id := range ids {
		w.m.EmbedTokens(x, []int32{id})
		for l, layer := range w.m.Layers {
			b.Attention(layer, x, 1, kv.Layers[l], i)
			normed := b.BeginMLP(layer, x, 1)
			rows, err := w.layer(l)
			if err != nil {
				t.Fatal(err)
			}
			act, importance := make([]float64, m), make([]float64, m)
			row := make([]float32, 3*h)
			down := make([][]float64, m)
			for j := range m {
				kernels.F16ToF32(row, rows.Mem[j*rows.Stride:][:3*h])
				g, u, norm := 0.0, 0.0, 0.0
				down[j] = make([]float64, h)
				for e := range h {
					g += float64(normed[e]) * float64(row[e])
					u += float64(normed[e]) * float64(row[h+e])
					down[j][e] = float64(row[2*h+e])
					norm += down[j][e] * down[j][e]
				}
				act[j] = g / (1 + math.Exp(-g)) * u
				importance[j] = math.Abs(act[j]) * math.Sqrt(norm)
			}
			active := map[int]bool{}
			if l >= d {
				set := choose(l, importance, in[l])
				kept, all := 0.0, 0.0
				for j := range m {
					all += importance[j]
					if set[j] {
						kept += importance[j]
					}
				}
				if i > 0 {
					for j := range set {
						if !in[l][j] {
							reads++
						}
					}
					recall += kept / all
					n++
				}
				in[l] = set
				active = set
			}
			for e := range h {
				sum := 0.0
				for j := range m {
					if l < d || i == 0 || active[j] {
						sum += act[j] * down[j][e]
					}
				}
				x[e] += float32(sum)
			}
		}
		logits := make([]float32, c.Vocab)
		b.Logits(logits, x, 0, 1)
		lp, _ := model.Rank(logits, targets[i], 0, nil)
		nll -= lp
	}
	return nll, reads, recall / float64(n)
}

// TestBruteForce holds the best possible choice and the fixed set against a plain token loop.
func TestBruteForce(t *testing.T) {
	dir := tinyBundle(t)
	const window, d = 40, 2
	r := measure(t, env(t, 0), Options{Bundles: []string{dir}, Dense: []int{d}, Selectors: []string{BestName, bundle.SelectorStatic}, Text: heldout, Window: window, Windows: 1})
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	pool := kernels.NewPool(1)
	defer pool.Close()
	w, err := loadWeights(context.Background(), b, pool, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	static, err := loadSelector(context.Background(), b, bundle.SelectorStatic, d, "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b.Path(bundle.MemberTokenizer))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(heldout)
	if err != nil {
		t.Fatal(err)
	}
	ids := tok.Encode(string(raw), false)[:window]
	top := func(score []float64, pins []int32) map[int]bool {
		set := map[int]bool{}
		for _, n := range pins {
			set[int(n)] = true
		}
		order := make([]int, len(score))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case score[a] > score[b]:
				return -1
			case score[a] < score[b]:
				return 1
			}
			return 0
		})
		for _, n := range order {
			if len(set) < kMax {
				set[n] = true
			}
		}
		return set
	}
	for _, x := range r.Rungs[1:] {
		nll, reads, recall := brute(t, w, ids[:window-1], ids[1:], d, kMax, func(l int, importance []float64, before map[int]bool) map[int]bool {
			if x.Selector == BestName {
				return top(importance, nil)
			}
			if before == nil { // position 0: its importance seeds
				return top(importance, static.Pins(l))
			}
			scores := make([]float32, len(importance))
			static.Scores(l, scores)
			for i, s := range scores {
				importance[i] = float64(s)
			}
			return top(importance, static.Pins(l))
		})
		want := math.Exp(nll / (window - 1))
		got := x.RowsPerToken * (window - 2)
		if math.Abs(want-x.Perplexity) > 1e-4*want || math.Abs(got-float64(reads)) > 4 {
			t.Errorf("%s: perplexity %v and %v rows, plainly %v and %d", x.Rung, x.Perplexity, got, want, reads)
		}
		if x.Selector == BestName && math.Abs(recall-x.Recall) > 1e-5 {
			t.Errorf("%s: recall %v, plainly %v", x.Rung, x.Recall, recall)
		}
	}
}

// TestResume holds that a run goes on where one ended, gives the same as one in one piece whatever the thread count, and
// survives damaged files.
func TestResume(t *testing.T) {
	o := Options{Bundles: []string{tinyBundle(t)}, Dense: []int{2}, Text: heldout, Window: 48, Windows: 4, Perfect: true, Budgets: []Budget{{Share: 0.1}}, Margins: []float32{0.5}}
	whole := measure(t, env(t, 1), o)
	e := env(t, 2)
	o.Windows = 2
	measure(t, e, o)
	o.Windows = 4
	if got := measure(t, e, o); !reflect.DeepEqual(got, whole) {
		t.Errorf("in two pieces:\n%+v\nin one:\n%+v", got, whole)
	}
	// Nothing is left to do: not even the weights are read.
	files, err := filepath.Glob(filepath.Join(e.Work, stateDir, "*.json"))
	if err != nil || len(files) != len(whole.Rungs) {
		t.Fatalf("%v, %v", files, err)
	}
	before := map[string]os.FileInfo{}
	for _, f := range files {
		if before[f], err = os.Stat(f); err != nil {
			t.Fatal(err)
		}
	}
	measure(t, e, o)
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || !st.ModTime().Equal(before[f].ModTime()) {
			t.Errorf("%s was written again", f)
		}
	}
	for i, damage := range []string{"", "{", `{"key": "x"}`} {
		if err := os.WriteFile(files[i], []byte(damage), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got := measure(t, e, o); !reflect.DeepEqual(got, whole) {
		t.Error("damaged files changed the result")
	}
	// Interrupted again and again, each time a little later.
	e, runs := env(t, 1), 0
	for n := 5; ; n += 60 {
		got, err := Run(&countdown{context.Background(), n}, e, o)
		if runs++; err == nil {
			if !reflect.DeepEqual(got, whole) || runs < 3 {
				t.Errorf("after %d interruptions:\n%+v\nwithout:\n%+v", runs-1, got, whole)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// countdown is cancelled when it was asked n times.
type countdown struct {
	context.Context
	n int
}

func (c *countdown) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestGroups holds that a small budget, where layers are read again and again and groups are single windows, changes
// nothing.
func TestGroups(t *testing.T) {
	o := Options{Bundles: []string{tinyBundle(t)}, Dense: []int{2, 3}, Text: heldout, Window: 48, Windows: 3, Perfect: true}
	whole := measure(t, env(t, 1), o)
	bs, err := openBundles(o.Bundles)
	if err != nil {
		t.Fatal(err)
	}
	rs, _, err := rungs(bs, o)
	if err != nil {
		t.Fatal(err)
	}
	e := env(t, 1)
	l := &run{e: e, o: o, bs: bs, rungs: rs, report: &Report{}}
	if err := errors.Join(l.load(), l.states()); err != nil {
		t.Fatal(err)
	}
	f, sels, _, err := l.prepare(context.Background(), 48, 1, 48)
	if err != nil {
		t.Fatal(err)
	}
	f.w.close()
	if f.w, err = loadWeights(context.Background(), bs[0], e.Pool, 0); err != nil {
		t.Fatal(err)
	}
	defer f.w.close()
	if f.w.keep {
		t.Fatal("layers are kept")
	}
	f.batch = f.w.m.NewBatch(48)
	r := &runner{f: f, rungs: rs, sels: sels, group: 1, strips: l.strips}
	if err := r.text(context.Background(), l.dense, l.of, nil); err != nil {
		t.Fatal(err)
	}
	got, err := l.summary()
	if err != nil {
		t.Fatal(err)
	}
	got.Warnings = whole.Warnings
	if !reflect.DeepEqual(got, whole) {
		t.Errorf("%+v, want %+v", got, whole)
	}
}

// TestItems holds HellaSwag on shared beginnings against one pass per ending on the engine.
func TestItems(t *testing.T) {
	dir, tmp := tinyBundle(t), t.TempDir()
	items, shots := filepath.Join(tmp, "items"), filepath.Join(tmp, "shots")
	line := func(i int, ctx string, endings ...string) string {
		return fmt.Sprintf(`{"ind": %d, "ctx": %q, "endings": ["%s", "%s", "%s"], "label": %d}`+"\n", i, ctx, endings[0], endings[1], endings[2], i%3)
	}
	err := errors.Join(
		os.WriteFile(items, []byte(line(0, "Tara came to the orchard. She", "saw ripe pears.", "x", "")+
			line(1, "The mule", "ran away at once.", "ran.", "sang a long song about the fog.")+
			line(2, "Hana held the ladder while Tara", "climbed.", "climbed up.", "climbed up again.")), 0o666),
		os.WriteFile(shots, []byte(line(4, "The fog lifted. They", "went home.", "sat down.", "slept.")+line(5, "Hana laughed. She", "was glad.", "was sad.", "left.")), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Bundles: []string{dir}, Dense: []int{2}, Selectors: []string{bundle.SelectorLookahead, bundle.SelectorPaper, bundle.SelectorStatic},
		HellaSwag: items, Shots: shots, NShots: []int{0, 2}, Device: true}
	e := env(t, 0)
	one := o
	one.Items = 1
	measure(t, e, one) // and then the rest
	r := measure(t, e, o)
	all, err := eval.LoadHellaSwag(items)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := eval.LoadHellaSwag(shots)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Rungs {
		eo := engine.Options{Mode: engine.ModeResident}
		if x.Selector != DenseName {
			eo = engine.Options{Mode: engine.ModeSparse, Dense: x.Dense, KMax: x.KMax, Selector: x.Selector}
		}
		eo.Context, eo.Storage.Direct = 512, "off"
		en, err := engine.Open(context.Background(), dir, eo)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range o.NShots {
			want, err := eval.RunHellaSwag(context.Background(), func(s string) []int32 { return en.Tokenizer.Encode(s, false) }, all, examples[:n], 512,
				func(ctx context.Context, ids []int32, from int) ([]float64, error) {
					lp, err := eval.LogProbs(ctx, en, ids)
					if err != nil {
						return nil, err
					}
					return lp[from:], nil
				}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := x.HellaSwag[i]
			if got.Shots != n || len(got.Rows) != len(want.Rows) {
				t.Fatalf("%s: %+v", x.Rung, got)
			}
			for j := range want.Rows {
				for k, v := range want.Rows[j].Sums {
					if math.Abs(v-got.Rows[j].Sums[k]) > 1e-4*math.Abs(v)+1e-4 {
						t.Errorf("%s, %d shots: item %d: %v, the engine has %v", x.Rung, n, j, got.Rows[j].Sums, want.Rows[j].Sums)
						break
					}
				}
			}
			if x.Selector == DenseName && (got.Same != 1 || got.SameNorm != 1) {
				t.Errorf("dense does not agree with itself: %+v", got)
			}
		}
		en.Close()
	}
}

// TestRefused names what is wrong with the wish.
func TestRefused(t *testing.T) {
	dir := tinyBundle(t)
	few := filepath.Join(t.TempDir(), "few")
	if err := os.WriteFile(few, []byte("a"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *Options){
		"no such bundle":       func(o *Options) { o.Bundles = []string{dir, "none"} },
		"unknown selector":     func(o *Options) { o.Selectors = []string{"nope"} },
		"dense everywhere":     func(o *Options) { o.Dense = []int{6} },
		"too many neurons":     func(o *Options) { o.KMax = []int{449} },
		"fewer than the pins":  func(o *Options) { o.KMax = []int{3} },
		"sparsity of one":      func(o *Options) { o.Sparsity = []float64{1} },
		"no such text":         func(o *Options) { o.Text = "none" },
		"too little text":      func(o *Options) { o.Text = few },
		"window too long":      func(o *Options) { o.Window = 513 },
		"no such items":        func(o *Options) { o.HellaSwag = "none" },
		"shots without a file": func(o *Options) { o.HellaSwag, o.NShots = few, []int{1} },
	} {
		o := Options{Bundles: []string{dir}, Text: heldout, Window: 16, Windows: 1}
		change(&o)
		if _, err := Run(context.Background(), env(t, 1), o); !errors.Is(err, format.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := env(t, 1)
	e.Memory = 1 << 20
	if _, err := Run(context.Background(), e, Options{Bundles: []string{dir}, Text: heldout, Window: 16, Windows: 1}); !errors.Is(err, format.ErrFit) {
		t.Errorf("a budget of 1 MiB: %v", err)
	}
}

// TestWarnings holds that the calibration text and short texts are told.
func TestWarnings(t *testing.T) {
	r := measure(t, env(t, 0), Options{Bundles: []string{tinyBundle(t)}, Selectors: []string{bundle.SelectorStatic}, Text: "../../pipelines/tiny/calibration.txt", Window: 16, Windows: 2, KMax: []int{kMax}})
	if len(r.Warnings) != 2 {
		t.Errorf("%q", r.Warnings)
	}
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		b    Budget
		want int
	}{{Budget{}, 0}, {Budget{Share: 0.17}, 17}, {Budget{Share: 0.001}, 1}, {Budget{Share: 1}, 100}, {Budget{Bytes: 4*512*9 + 1}, 9}, {Budget{Bytes: 1}, 1}, {Budget{Bytes: 1 << 40}, 100}} {
		if got := c.b.rows(100, 4, 512); got != c.want {
			t.Errorf("%+v: %d, want %d", c.b, got, c.want)
		}
	}
}

func TestExpMean(t *testing.T) {
	// Windows of 2 and 4 tokens at 1 and 2 nats each: mean 10/6; the windows are off by 2·(1−10/6) and 4·(2−10/6).
	v, se := eval.ExpMean([]float64{2, 8}, []int{2, 4})
	m := 10.0 / 6
	a, b := 2-2*m, 8-4*m
	if want := math.Exp(m); math.Abs(v-want) > 1e-12 || math.Abs(se-want*math.Sqrt(2*(a*a+b*b))/6) > 1e-12 {
		t.Errorf("%v ± %v", v, se)
	}
}

func TestRankCorrelation(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 2, 3, 9}, []float32{10, 20, 30, 31}, 1},
		{[]float32{1, 2, 3}, []float32{3, 2, 1}, -1},
		{[]float32{1, 2, 3, 4, 5}, []float32{2, 1, 4, 3, 5}, 0.8},
	} {
		if got := rankCorrelation(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v, %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
