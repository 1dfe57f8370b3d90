package moments

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
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
	"neuroprefetcher/runtime/predictor"
)

const tiny = "../../pipelines/tiny/"

func options(t *testing.T) Options {
	t.Helper()
	c, err := checkpoint.Open(tiny + "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return Options{Checkpoint: c, Texts: []string{tiny + "calibration.txt"}, Tokens: 70, Window: 16, Part: 32, Lags: []int{5, 1, 2}}
}

func env(t *testing.T, threads int) *stage.Env {
	t.Helper()
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(threads)}
	t.Cleanup(e.Pool.Close)
	return e
}

func dir(e *stage.Env) string { return filepath.Join(e.Work, Name) }

// TestMoments compares every moment with sums in float64 over tokens normed in float64.
func TestMoments(t *testing.T) {
	o, e := options(t), env(t, 2)
	r, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := o.Checkpoint.Config
	m, err := calib.OpenMoments(dir(e), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const windows, h = 5, 128
	if cfg.Hidden != h || m.Tokens != windows*15 || r.Values["tokens"] != windows*15 {
		t.Fatalf("%d tokens of width %d, report %v", m.Tokens, cfg.Hidden, r.Values)
	}
	txt, err := text.Load(o.Checkpoint, o.Texts)
	if err != nil {
		t.Fatal(err)
	}
	// windows are spread over the whole text
	ws := calib.Spread(calib.Cut(len(txt.Tokens), o.Window), windows)
	if ws[4].Start < len(txt.Tokens)/2 {
		t.Fatalf("windows %v", ws)
	}
	walker, err := forward.New(o.Checkpoint, e.Pool, o.Window, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := make([][][]float64, 2*cfg.Layers) // per site, per token
	g := walker.Begin(txt.Tokens, ws)
	for l := range cfg.Layers {
		keep := func(site, row int, stream []float32) {
			for i := range len(stream) / h {
				if (row+i)%16 == 0 {
					continue
				}
				sum, v := 0.0, make([]float64, h)
				for j := range v {
					v[j] = float64(stream[i*h+j])
					sum += v[j] * v[j]
				}
				for j := range v {
					v[j] /= math.Sqrt(sum/h + cfg.RMSEps)
				}
				x[site] = append(x[site], v)
			}
		}
		err := g.Layer(l, &forward.Taps{
			Before: func(row int, x []float32) { keep(2*l, row, x) },
			MLPIn:  func(row int, in []float32) { keep(2*l+1, row, g.X[row*h:row*h+len(in)]) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, got []float64, a, b [][]float64) {
		t.Helper()
		for i := range got {
			want, size := 0.0, 0.0
			for n := range a {
				v := a[n][i/h]
				if b != nil {
					v *= b[n][i%h]
				} else {
					v = a[n][i]
				}
				want, size = want+v, size+math.Abs(v)
			}
			if n := float64(len(a)); math.Abs(got[i]-want/n) > 1e-5*size/n+1e-9 {
				t.Fatalf("%s[%d]: %v, want %v", what, i, got[i], want/n)
			}
		}
	}
	get := func(v []float64, err error) []float64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	pairs := 0
	for l := 1; l < cfg.Layers; l++ {
		mlp := predictor.MLPSite(l)
		check("mean", get(m.Mean(mlp)), x[mlp], nil)
		check("gram", get(m.Gram(mlp)), x[mlp], x[mlp])
		for _, lag := range o.Lags {
			s := max(0, 2*l+1-lag)
			pairs++
			check("mean", get(m.Mean(s)), x[s], nil)
			check("gram", get(m.Gram(s)), x[s], x[s])
			check("cross", get(m.Cross(s, mlp)), x[s], x[mlp])
		}
	}
	if pairs != 15 {
		t.Errorf("%d pairs", pairs)
	}
}

func read(t *testing.T, e *stage.Env) string {
	t.Helper()
	var all []byte
	for _, name := range []string{calib.MomentsFile, calib.MomentsMetaFile} {
		b, err := os.ReadFile(filepath.Join(dir(e), name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
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

// interrupt runs the stage, ever longer, until one sum over parts but not all is left behind.
func interrupt(t *testing.T, e *stage.Env, o Options) (left string) {
	t.Helper()
	for n := 4; n < 200; n++ {
		if _, err := Run(&countdown{context.Background(), n}, e, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted run: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir(e), ".total-*")); len(left) == 1 {
			return left[0]
		}
	}
	t.Fatal("no part was left")
	return ""
}

// TestSameBytes asks for the same files with one and two threads, with and without room for all layers, and after an
// interruption, which must have left a part.
func TestSameBytes(t *testing.T) {
	o := options(t)
	a := env(t, 1)
	if _, err := Run(context.Background(), a, o); err != nil {
		t.Fatal(err)
	}
	want := read(t, a)
	b := env(t, 2)
	b.Memory = 4 << 20 // one layer, but not six
	interrupt(t, b, o)
	if _, err := calib.OpenMoments(dir(b), o.Checkpoint.Config); err == nil {
		t.Error("half the moments can be opened")
	}
	if _, err := Run(context.Background(), b, o); err != nil {
		t.Fatal(err)
	}
	if read(t, b) != want {
		t.Error("other bytes")
	}
	if r, err := Run(context.Background(), b, o); err != nil || !r.Skipped {
		t.Errorf("third run: skipped %v, %v", r.Skipped, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir(b), ".*")); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	// a leftover that is not what it was is not gone on from
	c := env(t, 2)
	left := interrupt(t, c, o)
	f, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	f[len(f)-3] ^= 1
	if err := os.WriteFile(left, f, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), c, o); err != nil {
		t.Fatal(err)
	}
	if read(t, c) != want {
		t.Error("other bytes after damage to a part")
	}
}

// TestParts asks for the same bytes however the text is cut into parts.
func TestParts(t *testing.T) {
	want := ""
	for _, part := range []int{1, 20, 1000} { // a part per window, some, one part
		o, e := options(t), env(t, 1)
		o.Part = part
		if _, err := Run(context.Background(), e, o); err != nil {
			t.Fatal(err)
		}
		if got := read(t, e); want == "" {
			want = got
		} else if got != want {
			t.Errorf("parts of %d tokens: other bytes", part)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(o *Options, e *stage.Env){
		"windows of one token": func(o *Options, e *stage.Env) { o.Window = 1 },
		"lag 0":                func(o *Options, e *stage.Env) { o.Lags = []int{0} },
		"lag 65":               func(o *Options, e *stage.Env) { o.Lags = []int{65} },
		"no text":              func(o *Options, e *stage.Env) { o.Texts = nil },
		"memory":               func(o *Options, e *stage.Env) { e.Memory = 1 << 19 },
		"one token": func(o *Options, e *stage.Env) {
			path := filepath.Join(e.Work, "short")
			if err := os.WriteFile(path, []byte("a"), 0o666); err != nil {
				t.Fatal(err)
			}
			o.Texts = []string{path}
		},
	} {
		o, e := options(t), env(t, 1)
		change(&o, e)
		if _, err := Run(context.Background(), e, o); !errors.Is(err, format.ErrInput) && !errors.Is(err, format.ErrFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNonFinite: an overflow stops the run and is named by layer, token and file, also behind tokens that are well.
func TestNonFinite(t *testing.T) {
	c, err := checkpoint.Open(checkpointtest.Dir(t, checkpointtest.Overflow))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var names []string
	for name, text := range map[string]string{"a": "zzzzzzzz", "b": "zqwxjqwx"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		names = append(names, path)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	_, err = Run(context.Background(), env(t, 2), Options{Checkpoint: c, Texts: names, Tokens: 16, Window: 8, Part: 8, Lags: []int{1}})
	if !errors.Is(err, format.ErrInput) {
		t.Fatalf("overflow: %v", err)
	}
	for _, part := range []string{"layer 1", "token 9 ", names[1]} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q lacks %q", err, part)
		}
	}
}

// TestDamage bends finished moments; opening or reading must refuse and name the tensor or the file.
func TestDamage(t *testing.T) {
	o, e := options(t), env(t, 1)
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir(e), calib.MomentsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func() error {
		m, err := calib.OpenMoments(dir(e), o.Checkpoint.Config)
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = m.Gram(3)
		return err
	}
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Replace(whole, []byte(`"gram.3"`), []byte(`"gram.X"`), 1))
	if err := open(); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "gram.3") {
		t.Errorf("absence: %v", err)
	}
	write(whole[:len(whole)-8])
	if err := open(); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), calib.MomentsFile) {
		t.Errorf("truncation: %v", err)
	}
	bad := bytes.Clone(whole)
	for i := 8 + int(binary.LittleEndian.Uint64(bad)); i < len(bad); i++ {
		bad[i] = 0xff // not a number
	}
	write(bad)
	if err := open(); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "gram.3") {
		t.Errorf("not a number: %v", err)
	}
	write(whole)
	if err := open(); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(dir(e), calib.MomentsMetaFile)
	var m calib.MomentsMeta
	b, _ := os.ReadFile(meta)
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	m.Lags = []int{0}
	b, _ = json.Marshal(m)
	if err := os.WriteFile(meta, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := open(); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), calib.MomentsMetaFile) {
		t.Errorf("lag 0: %v", err)
	}
}
