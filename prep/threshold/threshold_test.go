package threshold

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
)

const tiny = "../../pipelines/tiny/"

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
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	return e
}

func counts(t *testing.T, e *stage.Env, o Options) calib.Counts {
	t.Helper()
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	c, err := calib.ReadCounts(filepath.Join(e.Work, "threshold", calib.CountsFile), o.Checkpoint.Config.Layers)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// split writes the text's lines into n files.
func split(t *testing.T, path string, n int) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	var names []string
	dir := t.TempDir()
	for i := range n {
		name := filepath.Join(dir, "part-"+strconv.Itoa(i))
		if err := os.WriteFile(name, []byte(strings.Join(lines[i*len(lines)/n:(i+1)*len(lines)/n], "")), 0o666); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestSameCounts asks for identical counters however the windows are grouped, the text is split and the work is
// threaded, and compares them with magnitudes counted one by one.
func TestSameCounts(t *testing.T) {
	c := open(t, tiny+"checkpoint")
	const tokens, window = 900, 16
	files := []string{tiny + "calibration.txt"}
	want := counts(t, env(t, 1), Options{Checkpoint: c, Texts: files, Tokens: tokens, Window: window})
	for name, o := range map[string]Options{
		"one window at a time": {Group: 1},
		"7 windows":            {Group: 7 * window},
		"64 windows":           {Group: 64 * window},
		"50 files":             {Texts: split(t, files[0], 50)},
	} {
		o.Checkpoint, o.Tokens, o.Window = c, tokens, window
		if o.Texts == nil {
			o.Texts = files
		}
		if got := counts(t, env(t, 2), o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other counters", name)
		}
	}

	txt, err := text.Load(c, files)
	if err != nil {
		t.Fatal(err)
	}
	w, err := forward.New(c, nil, window, 1, 0) // no room: every layer is loaded anew
	if err != nil {
		t.Fatal(err)
	}
	g := w.Begin(txt.Tokens, calib.Cut(tokens, window))
	for l := range want {
		plain := [2][]uint64{make([]uint64, calib.Buckets), make([]uint64, calib.Buckets)}
		err := g.Layer(l, &forward.Taps{MLP: func(row, t, lo, hi int, gate, up []float32) {
			act := make([]float32, len(gate))
			kernels.SiLU(act, gate)
			for i := range act {
				plain[0][kernels.F16Bits(act[i])&0x7fff]++
				plain[1][kernels.F16Bits(up[i])&0x7fff]++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain, want[l]) {
			t.Errorf("layer %d: counters differ from magnitudes counted one by one", l)
		}
	}
}

// TestResume interrupts after a group and asks that the rest gives the same.
func TestResume(t *testing.T) {
	c := open(t, tiny+"checkpoint")
	o := Options{Checkpoint: c, Texts: []string{tiny + "calibration.txt"}, Tokens: 200, Window: 20, Group: 40}
	want := counts(t, env(t, 2), o)
	e := env(t, 2)
	ctx := &countdown{Context: context.Background(), n: 20} // five groups of six layers
	if _, err := Run(ctx, e, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted run: %v", err)
	}
	units, _ := filepath.Glob(filepath.Join(e.Work, "threshold", ".counts-*"))
	if len(units) == 0 || len(units) == 5 {
		t.Fatalf("%d units are left, want some but not all", len(units))
	}
	if got := counts(t, e, o); !reflect.DeepEqual(got, want) {
		t.Error("a resumed run gives other counters")
	}
	if r, err := Run(context.Background(), e, o); err != nil || !r.Skipped {
		t.Errorf("third run: skipped %v, %v", r.Skipped, err)
	}
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

// TestNonFinite: a norm weight so large that products overflow stops the run; the message has layer, token and file.
func TestNonFinite(t *testing.T) {
	dir := checkpointtest.Dir(t, func(m *checkpointtest.Model) {
		m.NormDType = "F32"
		m.Edit = func(ts []checkpointtest.Tensor) []checkpointtest.Tensor {
			norm := checkpointtest.Find(ts, "model.layers.1.post_attention_layernorm.weight")
			for i := range norm.Values() {
				norm.Set(i, 3e38)
			}
			return ts
		}
	})
	c := open(t, dir)
	names := []string{filepath.Join(t.TempDir(), "a.txt"), filepath.Join(t.TempDir(), "b.txt")}
	for _, name := range names {
		if err := os.WriteFile(name, []byte("some words for the model to read, and more"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Run(context.Background(), env(t, 2), Options{Checkpoint: c, Texts: names, Tokens: 10, Window: 8})
	if !errors.Is(err, format.ErrInput) {
		t.Fatalf("overflow: %v", err)
	}
	for _, part := range []string{"layer 1", "activation of neuron", "token 0 ", names[0]} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q lacks %q", err, part)
		}
	}
}

// TestWeightBeyondFloat16: a gate weight that would make products overflow is refused by name before any text is read.
func TestWeightBeyondFloat16(t *testing.T) {
	const name = "model.layers.1.mlp.gate_proj.weight"
	c := open(t, checkpointtest.Dir(t, func(m *checkpointtest.Model) {
		m.DType, m.NormDType = "F32", "F32"
		m.Edit = func(ts []checkpointtest.Tensor) []checkpointtest.Tensor {
			checkpointtest.Find(ts, name).Set(77, 3e38)
			return ts
		}
	}))
	text := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(text, []byte("some words for the model to read, and more"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Run(context.Background(), env(t, 2), Options{Checkpoint: c, Texts: []string{text}, Tokens: 10, Window: 8})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "element 77 ") || !strings.Contains(err.Error(), "65504") {
		t.Errorf("%v", err)
	}
}

// TestZeroTokens: tokens whose embedding is all zero give magnitudes of zero wherever they stand, also in the first window
// and alone; the counters are those of the same windows in another order, and so the threshold is.
func TestZeroTokens(t *testing.T) {
	const window = 8
	c := open(t, checkpointtest.Dir(t, func(m *checkpointtest.Model) {
		m.DType, m.NormDType = "F32", "F32"
		m.Edit = func(ts []checkpointtest.Tensor) []checkpointtest.Tensor {
			embed := checkpointtest.Find(ts, "model.embed_tokens.weight")
			for i := range m.Hidden {
				embed.Set((checkpointtest.FirstByte+'z')*m.Hidden+i, 0)
			}
			return ts
		}
	}))
	zeros, words := strings.Repeat("z", window), "qwzxjqwzxjqwzxjq"
	count := func(parts ...string) calib.Counts {
		var names []string
		dir, n := t.TempDir(), 0
		for i, p := range parts {
			name := filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(name, []byte(p), 0o666); err != nil {
				t.Fatal(err)
			}
			names, n = append(names, name), n+len(p)
		}
		return counts(t, env(t, 2), Options{Checkpoint: c, Texts: names, Tokens: n, Window: window, Group: window})
	}
	first, last := count(zeros, words), count(words, zeros)
	if !reflect.DeepEqual(first, last) {
		t.Error("the counters depend on which window comes first")
	}
	only := count(zeros)
	for l := range only {
		for p := range only[l] {
			if total := uint64(window * c.Config.Intermediate); only[l][p][0] != total {
				t.Errorf("layer %d: %d of %d magnitudes of nothing are zero", l, only[l][p][0], total)
			}
			if bits, reached := calib.Threshold(only[l][p], 0.4); bits != 1 || reached != 0 {
				t.Errorf("layer %d: threshold %#x with density %v for magnitudes of zero, want the smallest above zero and none", l, bits, reached)
			}
			if bits, reached := calib.Threshold(first[l][p], 0.4); bits == 0 || bits >= 0x7c00 || reached > 0.4 || reached < 0.39 {
				t.Errorf("layer %d: threshold %#x with density %v", l, bits, reached)
			}
		}
	}
}

func TestTooLittleText(t *testing.T) {
	c := open(t, tiny+"checkpoint")
	name := filepath.Join(t.TempDir(), "short.txt")
	if err := os.WriteFile(name, []byte("few"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Run(context.Background(), env(t, 1), Options{Checkpoint: c, Texts: []string{name}, Tokens: 5000})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "5000") {
		t.Errorf("three letters for 5000 tokens: %v", err)
	}
	_, err = Run(context.Background(), env(t, 1), Options{Checkpoint: c, Texts: []string{name}, Tokens: 1, Window: 513})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "512") {
		t.Errorf("a window beyond the context: %v", err)
	}
	e := env(t, 1)
	e.Memory = 1 << 10
	if _, err = Run(context.Background(), e, Options{Checkpoint: c, Texts: []string{name}, Tokens: 1}); !errors.Is(err, format.ErrFit) {
		t.Errorf("a budget of 1 KiB: %v", err)
	}
}
