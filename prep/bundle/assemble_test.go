package assemble

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/prep/repack"
	"neuroprefetcher/prep/stage"
)

// prepared opens a checkpoint and repacks it into a work folder.
func prepared(t *testing.T, edits ...func(*ct.Model)) (*checkpoint.Checkpoint, *stage.Env) {
	t.Helper()
	c, err := checkpoint.Open(ct.Dir(t, edits...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &stage.Env{Work: t.TempDir()}
	if _, err := repack.Run(context.Background(), e, repack.Options{Checkpoint: c}); err != nil {
		t.Fatal(err)
	}
	return c, e
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDenseBundle(t *testing.T) {
	const template = "{{ messages[0].content }}"
	c, e := prepared(t, func(m *ct.Model) {
		m.Files = map[string]string{"tokenizer_config.json": `{"chat_template":"` + template + `"}`, "generation_config.json": `{"eos_token_id":[2,7]}`}
	})
	out := filepath.Join(t.TempDir(), "b.np")
	o := Options{Checkpoint: c, Out: out, Dense: true, Tool: "test 1"}
	r, err := Run(context.Background(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	// the source's files as they were, the template in a file of its own
	for _, n := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		if !bytes.Equal(read(t, b.Path(n)), read(t, filepath.Join(c.Dir, n))) {
			t.Errorf("%s differs from the source's", n)
		}
	}
	if got := read(t, b.Path(bundle.MemberTemplate)); string(got) != template {
		t.Errorf("chat template %q", got)
	}
	m := b.Manifest
	if m.Sparse != nil || b.Has(bundle.MemberCentroids) || b.Has(bundle.MemberPredictor) {
		t.Error("a dense bundle has something sparse")
	}
	if m.Tool != "test 1" || m.Model.Hidden != 64 || m.Model.Layers != 3 || len(m.Model.EOS) != 2 {
		t.Errorf("manifest: tool %q, model %+v", m.Tool, m.Model)
	}
	var total int64
	for _, x := range m.Members {
		total += x.Size
	}
	if r.Values["bytes"] != total {
		t.Errorf("report says %v bytes, members have %d", r.Values["bytes"], total)
	}
	if len(m.Sources) != len(c.Files()) {
		t.Errorf("%d sources for %d files", len(m.Sources), len(c.Files()))
	}
	for i, f := range c.Files() {
		if h, _ := stage.FileHash(f); m.Sources[i].SHA256 != h || m.Sources[i].Name != filepath.Base(f) {
			t.Errorf("source %+v, want %s %s", m.Sources[i], f, h)
		}
	}
	if bytes.Contains(read(t, b.Path(bundle.MemberManifest)), []byte(c.Dir)) {
		t.Error("the manifest holds a path of this machine")
	}
}

// A file that changed in the work folder behind its stage's back does not get into a bundle.
func TestTamperedRowsAreRefused(t *testing.T) {
	c, e := prepared(t)
	path := filepath.Join(e.Work, repack.Name, bundle.MemberRows)
	b := read(t, path)
	b[9000] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.np")
	_, err := Run(context.Background(), e, Options{Checkpoint: c, Out: out, Dense: true})
	if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "rows.np") || !strings.Contains(format.HintOf(err), "repack") {
		t.Errorf("%v (hint %q)", err, format.HintOf(err))
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published")
	}
}

// Another model's work folder gives no bundle, though every shape is the same.
func TestAnotherModelsRecordsAreRefused(t *testing.T) {
	_, e := prepared(t)
	c, _ := prepared(t, func(m *ct.Model) { m.Seed = 2 })
	out := filepath.Join(t.TempDir(), "b.np")
	_, err := Run(context.Background(), e, Options{Checkpoint: c, Out: out, Dense: true})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "repack was not made from "+c.Dir) || format.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published")
	}
}

func TestMissingStages(t *testing.T) {
	c, e := prepared(t)
	out := filepath.Join(t.TempDir(), "b.np")
	if _, err := Run(context.Background(), e, Options{Checkpoint: c, Out: out, KMax: 10}); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "capture") {
		t.Errorf("without calibration: %v", err)
	}
	if _, err := Run(context.Background(), &stage.Env{Work: t.TempDir()}, Options{Checkpoint: c, Out: out, Dense: true}); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "repack") {
		t.Errorf("without records: %v", err)
	}
}

func TestResolveKMax(t *testing.T) {
	for _, c := range []struct {
		kMax     int
		sparsity float64
		m, want  int // 0: refused
	}{
		{0, 0.5, 14336, 7168}, {0, 0.62, 14336, 5448}, {5500, 0.5, 14336, 5500}, {0, 0, 96, 96}, {0, 0.999, 96, 1}, {96, 0, 96, 96}, {1, 0, 96, 1},
		{97, 0, 96, 0}, {-1, 0, 96, 0}, {0, 1, 96, 0}, {0, -0.1, 96, 0},
	} {
		got, err := ResolveKMax(c.kMax, c.sparsity, c.m)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	nan := 0.0
	if _, err := ResolveKMax(0, nan/nan, 96); err == nil {
		t.Error("NaN was taken")
	}
}

// A tokenizer that nprun would refuse is not published, though the weights are.
func TestUnusableTokenizer(t *testing.T) {
	c, e := prepared(t, func(m *ct.Model) {
		m.Tokenizer = func(tok map[string]any) { delete(tok["model"].(map[string]any), "merges") }
	})
	out := filepath.Join(t.TempDir(), "b.np")
	_, err := Run(context.Background(), e, Options{Checkpoint: c, Out: out, Dense: true})
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "tokenizer.json") || !strings.Contains(err.Error(), "no merges") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published")
	}
}
