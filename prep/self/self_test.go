package self

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

func open(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func env(t *testing.T, threads int) *stage.Env {
	t.Helper()
	e := &stage.Env{Work: t.TempDir(), Seed: 1, Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	return e
}

func options(t *testing.T) Options {
	return Options{Checkpoint: open(t, "../../pipelines/tiny/checkpoint"), Tokens: 150, Window: 20}
}

func read(t *testing.T, e *stage.Env) string {
	t.Helper()
	b, err := os.ReadFile(File(e.Work))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// countdown is cancelled after n looks at it.
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

// TestSameText asks for the same text whatever the threads, the strands side by side, the room for layers, and
// interruptions; for another one from another seed; and for as many tokens as were wanted.
func TestSameText(t *testing.T) {
	o, e := options(t), env(t, 2)
	r, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	want := read(t, e)
	txt, err := text.Load(o.Checkpoint, []string{File(e.Work)})
	if err != nil {
		t.Fatal(err)
	}
	if len(txt.Tokens) < o.Tokens || r.Values["tokens"] != len(txt.Tokens) {
		t.Errorf("%d tokens, report %v", len(txt.Tokens), r.Values)
	}
	if n := r.Values["strands"].(int); n < 8 {
		t.Fatalf("%d strands", n)
	}
	paragraphs := strings.Split(strings.TrimSpace(want), "\n\n")
	seen := map[string]bool{}
	for _, p := range paragraphs {
		seen[p] = true
	}
	if len(seen) < 8 {
		t.Errorf("%d documents are different", len(seen))
	}

	b, three := env(t, 1), o
	three.most = 3
	b.Memory = 8 << 20 // not all layers
	if _, err := Run(&countdown{context.Background(), 300}, b, three); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted run: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(b.Work, Name, ".strand-*"))
	if len(left) == 0 || len(left) >= 8 {
		t.Fatalf("%d strands are left, want some but not all", len(left))
	}
	if err := os.WriteFile(left[0], []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), b, o); err != nil {
		t.Fatal(err)
	}
	if read(t, b) != want {
		t.Error("another text with one thread, three strands and an interruption")
	}
	if r, err := Run(context.Background(), b, o); err != nil || !r.Skipped {
		t.Errorf("third run: skipped %v, %v", r.Skipped, err)
	}
	e.Seed = 2
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	if read(t, e) == want {
		t.Error("another seed gives the same text")
	}
}

// TestLikely holds that the text is what the model finds likely: its mean log-probability is far above that of the same
// words in another order.
func TestLikely(t *testing.T) {
	o, e := options(t), env(t, 2)
	o.Tokens = 400
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(filepath.Join(o.Checkpoint.Dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := forward.New(o.Checkpoint, e.Pool, 512, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.LoadHead(); err != nil {
		t.Fatal(err)
	}
	mean := func(ids []int32) float64 {
		m := w.Model
		b := m.NewMany(1)
		wr := newWriter(w, tok, 1, len(ids), 1)
		sum, logits := 0.0, make([]float32, m.Config.Vocab)
		for i, id := range ids[:len(ids)-1] {
			x := make([]float32, m.Config.Hidden)
			m.EmbedTokens(x, []int32{id})
			for l := range m.Config.Layers {
				layer, rows, err := w.Load(l)
				if err != nil {
					t.Fatal(err)
				}
				b.Attention(layer, x, wr.kvs[0].Layers[l:l+1], []int{i})
				b.MLP(layer, rows, x, 1, nil)
			}
			b.Logits(logits, x, 0, 1)
			sum += float64(logits[ids[i+1]] - kernels.LogSumExp(logits))
		}
		return sum / float64(len(ids)-1)
	}
	ids := tok.Encode(read(t, e), false)[:100]
	mixed := append([]int32(nil), ids...)
	for i := range mixed {
		j := i * 37 % len(mixed)
		mixed[i], mixed[j] = mixed[j], mixed[i]
	}
	if a, b := mean(ids), mean(mixed); !(a > b+1) {
		t.Errorf("mean log-probability %v, of the same tokens mixed %v", a, b)
	}
}

// TestStarts asks that documents begin with the beginning token alone now and then, else with a word.
func TestStarts(t *testing.T) {
	o := options(t)
	tok, err := tokenizer.Load(filepath.Join(o.Checkpoint.Dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStarts(o.Checkpoint.Config, tok)
	if len(s.words) < 20 {
		t.Fatalf("%d words in the vocabulary", len(s.words))
	}
	for _, id := range s.words {
		if b := tok.Bytes(id); b[0] != ' ' || len(b) < 2 {
			t.Errorf("token %d is %q", id, b)
		}
	}
	w := &writer{seed: 5, starts: s}
	bos, different := 0, map[int32]bool{}
	for i := range 400 {
		st, err := w.begin(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(st.doc) != 1 || st.pos != 0 || st.left != -1 {
			t.Fatalf("strand %d begins with %v at %d", i, st.doc, st.pos)
		}
		if st.next == s.bos && len(st.forced) == 0 {
			bos++
		}
		different[st.next] = true
	}
	if s.bos >= 0 && (bos < 20 || bos > 100) || len(different) < 20 {
		t.Errorf("of 400 documents %d begin with the beginning token alone, and %d are different", bos, len(different))
	}
	s.bos, s.first = 1, true
	rng := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		if ids := s.draw(rng, nil); ids[0] != 1 || len(ids) > 2 {
			t.Fatalf("a model that wants the beginning token begins with %v", ids)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(o *Options, e *stage.Env){
		"no tokens":           func(o *Options, e *stage.Env) { o.Tokens = 0 },
		"minus one":           func(o *Options, e *stage.Env) { o.Tokens = -1 },
		"more than there are": func(o *Options, e *stage.Env) { o.Tokens = MaxTokens + 1 },
		"beyond the context":  func(o *Options, e *stage.Env) { o.Window = 513 },
		"a budget of 1 KiB":   func(o *Options, e *stage.Env) { e.Memory = 1 << 10 },
		"less than one strand": func(o *Options, e *stage.Env) {
			c := o.Checkpoint.Config
			e.Memory = forward.Fixed(c, model.New(c, nil), 1) + forward.HeadBytes(c) + 1000
		},
	} {
		o, e := options(t), env(t, 1)
		change(&o, e)
		if _, err := Run(context.Background(), e, o); !errors.Is(err, format.ErrInput) && !errors.Is(err, format.ErrFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNonFinite: a model whose scores overflow is refused.
func TestNonFinite(t *testing.T) {
	dir := checkpointtest.Dir(t, func(m *checkpointtest.Model) {
		m.NormDType = "F32"
		m.Edit = func(ts []checkpointtest.Tensor) []checkpointtest.Tensor {
			norm := checkpointtest.Find(ts, "model.norm.weight")
			for i := range norm.Values() {
				norm.Set(i, math.MaxFloat32)
			}
			return ts
		}
	})
	_, err := Run(context.Background(), env(t, 2), Options{Checkpoint: open(t, dir), Tokens: 10, Window: 8})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("overflow: %v", err)
	}
}
