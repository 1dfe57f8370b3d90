package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib/calibtest"
	"neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// exchange has a capture, its clustering, and a trained predictor; and the data set exported.
func exchange(t *testing.T) (e *stage.Env, o Options, dir string) {
	t.Helper()
	p := calibtest.Planted{Config: calibtest.Config(3, 16, 70), Tokens: 1200, Window: 60, Parts: 3, Groups: 6, Noise: 0.01, Seed: 4}
	e = &stage.Env{Work: t.TempDir(), Seed: 7, Pool: kernels.NewPool(2)}
	t.Cleanup(e.Pool.Close)
	if err := calibtest.Capture(context.Background(), e, p); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Run(context.Background(), e, cluster.Options{Config: p.Config, Centroids: 6}); err != nil {
		t.Fatal(err)
	}
	o = Options{Config: p.Config, Dim: 16, Epochs: 6, Batch: 64}
	if _, err := Run(context.Background(), e, o); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "data")
	if _, err := Export(context.Background(), e, o, dir); err != nil {
		t.Fatal(err)
	}
	return e, o, dir
}

func readConfig(t *testing.T, dir string) (c Config) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExport compares the data set with what the stage itself trains on.
func TestExport(t *testing.T) {
	e, o, dir := exchange(t)
	d, err := load(e.Work, o.Config, o.Dim)
	if err != nil {
		t.Fatal(err)
	}
	defer d.c.Close()
	c := readConfig(t, dir)
	if c.Version != 1 || c.Tokens != 1200 || c.Dim != 16 || c.Hidden != 16 || c.Seed != 7 || c.Epochs != 6 || len(c.Heads) != 4 || c.Names[3] != predictor.HeadName(1, 2) || len(c.Data) != 64 {
		t.Errorf("configuration %+v", c)
	}
	f, err := tensors.Open(filepath.Join(dir, DataFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := make([]float32, 16)
	for j, name := range predictor.FeatureNames {
		half, err := f.F16("feat." + name)
		if err != nil {
			t.Fatal(err)
		}
		for tok := range c.Tokens {
			d.c.Feature(j, tok, x)
			for i, v := range x {
				if kernels.F16Value(half[tok*16+i]) != v {
					t.Fatalf("feature %s of token %d", name, tok)
				}
			}
		}
	}
	ids := func(name string) []int32 {
		v, err := f.I32(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, id := range ids("ids") {
		if uint16(id) != d.ids[i/c.Tokens][i%c.Tokens] {
			t.Fatalf("table %d, token %d: id %d", i/c.Tokens, i%c.Tokens, id)
		}
	}
	for i, id := range ids("gate0") {
		if uint16(id) != d.gate0[i] {
			t.Fatalf("gate0 of token %d", i)
		}
	}
	if fmt.Sprint(ids("train"), ids("held")) != fmt.Sprint(d.train, d.held) {
		t.Error("another split")
	}
}

// give writes weights as another trainer would: the tensors of a predictor file, bent, with metadata.
func give(t *testing.T, from string, meta map[string]string, bend func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool)) string {
	t.Helper()
	f, err := tensors.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entries []tensors.Entry
	for _, name := range f.Names() {
		in, _ := f.Info(name)
		b, err := f.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		e, b, keep := bend(tensors.Entry{Name: name, DType: in.DType, Shape: in.Shape}, append([]byte(nil), b...))
		if !keep {
			continue
		}
		e.Write = func(w io.Writer) error { _, err := w.Write(b); return err }
		entries = append(entries, e)
	}
	path := filepath.Join(t.TempDir(), "given.safetensors")
	if err := tensors.Write(path, entries, meta); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImport(t *testing.T) {
	e, o, dir := exchange(t)
	trained := filepath.Join(e.Work, "train", File)
	want, err := os.ReadFile(trained)
	if err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(t.TempDir(), "trained")
	if err := os.WriteFile(keep, want, 0o666); err != nil {
		t.Fatal(err)
	}
	loss := e.Values("train")["heldout_loss"].(float64)
	meta := map[string]string{versionKey: "1", dataKey: readConfig(t, dir).Data}
	asIs := func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool) { return e, b, true }
	in := func(path string) (stage.Report, error) {
		o := o
		o.Import = path
		return Run(context.Background(), e, o)
	}
	r, err := in(give(t, keep, meta, asIs))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(trained); string(got) != string(want) {
		t.Error("other bytes than were given")
	}
	if got := r.Values["heldout_loss"].(float64); math.Abs(got-loss) > 2e-3*loss+1e-3 { // the weights are float16 now
		t.Errorf("held-out loss %v, was %v", got, loss)
	}
	first := func(name string, f func(e *tensors.Entry, b []byte) bool) func(tensors.Entry, []byte) (tensors.Entry, []byte, bool) {
		return func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool) {
			if e.Name == name {
				return e, b, f(&e, b)
			}
			return e, b, true
		}
	}
	head := predictor.HeadName(0, 1)
	for name, path := range map[string]string{
		"version":      give(t, keep, map[string]string{versionKey: "2", dataKey: meta[dataKey]}, asIs),
		"no metadata":  give(t, keep, nil, asIs),
		"another data": give(t, keep, map[string]string{versionKey: "1", dataKey: strings.Repeat("0", 64)}, asIs),
		head:           give(t, keep, meta, first(head, func(*tensors.Entry, []byte) bool { return false })),
		predictor.FinalName: give(t, keep, meta, first(predictor.FinalName, func(_ *tensors.Entry, b []byte) bool {
			copy(b[4:], []byte{0, 0, 0xc0, 0x7f}) // not a number
			return true
		})),
		predictor.ProjName(2): give(t, keep, meta, first(predictor.ProjName(2), func(_ *tensors.Entry, b []byte) bool {
			copy(b[4:], []byte{0, 0x7c}) // infinite
			return true
		})),
		predictor.BlockW1Name(0): give(t, keep, meta, func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool) {
			if e.Name == predictor.BlockW1Name(0) {
				e.Shape = []int{e.Shape[1], e.Shape[0]}
			}
			return e, b, true
		}),
		"28 tensors": give(t, keep, meta, func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool) {
			if e.Name == head {
				e.Name = "another"
			}
			return e, b, true
		}),
		"cut": func() string {
			path := filepath.Join(t.TempDir(), "cut")
			b, _ := os.ReadFile(give(t, keep, meta, asIs))
			if err := os.WriteFile(path, b[:len(b)-2], 0o666); err != nil {
				t.Fatal(err)
			}
			return path
		}(),
		"wide": give(t, keep, meta, func(e tensors.Entry, b []byte) (tensors.Entry, []byte, bool) {
			if e.Name == predictor.ProjName(0) { // claims a width that the file cannot hold
				e.Shape, b = []int{8000, 16}, make([]byte, 2*8000*16)
			}
			return e, b, true
		}),
		"absent": filepath.Join(t.TempDir(), "absent"),
	} {
		_, err := in(path)
		if !errors.Is(err, format.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(name, ".") && err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

// TestPyTorch trains with pipelines/ddp/train.py, by one process and by two, and asks that both reach what the stage
// reaches. It needs a Python with PyTorch, named by NP_PYTHON.
func TestPyTorch(t *testing.T) {
	python := os.Getenv("NP_PYTHON")
	if python == "" {
		t.Skip("NP_PYTHON does not name a Python with PyTorch")
	}
	e, o, dir := exchange(t)
	loss := e.Values("train")["heldout_loss"].(float64)
	var got []float64
	for world := 1; world <= 2; world++ {
		out := filepath.Join(t.TempDir(), "out.safetensors")
		done := make(chan error, world)
		for rank := range world {
			c := exec.Command(python, "../../pipelines/ddp/train.py", "--data", dir, "--out", out)
			c.Env = append(os.Environ(), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29511", "OMP_NUM_THREADS=1",
				fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", world))
			c.Stderr = os.Stderr
			go func() { done <- c.Run() }()
		}
		for range world {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		o := o
		o.Import = out
		r, err := Run(context.Background(), e, o)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Values["heldout_loss"].(float64))
	}
	t.Logf("held-out loss here %v, with one process %v, with two %v", loss, got[0], got[1])
	if math.Abs(got[0]-got[1]) > 0.01*got[0] || math.Abs(got[0]-loss) > 0.25*loss {
		t.Errorf("held-out loss %v here, %v there", loss, got)
	}
}
