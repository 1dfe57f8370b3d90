package prepare

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/prep/stage"
)

func open(t *testing.T) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(ct.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A dense bundle leaves calibration out; a second run does nothing.
func TestDenseOrder(t *testing.T) {
	o := Options{Checkpoint: open(t), Out: filepath.Join(t.TempDir(), "b.np"), Dense: true, Tool: "test"}
	work := t.TempDir()
	for _, again := range []bool{false, true} {
		rs, err := Run(context.Background(), &stage.Env{Work: work}, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(rs) != 2 || rs[0].Stage != "repack" || rs[1].Stage != "bundle" || rs[0].Skipped != again || rs[1].Skipped != again {
			t.Errorf("%+v", rs)
		}
	}
}

// What a later stage would refuse is refused before the first one runs.
func TestRefusedBeforeTheFirstStage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, s string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := file("text", "some words to calibrate with")
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"k-max above M":       func(o *Options) { o.KMax = 97 },
		"too many centroids":  func(o *Options) { o.Centroids = 1 << 30 },
		"predictor too wide":  func(o *Options) { o.Dim = 1 << 30 },
		"no learning rate":    func(o *Options) { o.LR = math.NaN() },
		"no such text":        func(o *Options) { o.Texts = []string{text, filepath.Join(dir, "none")} },
		"text is a directory": func(o *Options) { o.Texts = []string{dir} },
		"text is a fifo":      func(o *Options) { o.Texts = []string{fifo} },
		"text never ends":     func(o *Options) { o.Texts = []string{"/dev/zero"} },
		"text is empty":       func(o *Options) { o.Texts = []string{file("empty", "")} },
		"text is not UTF-8":   func(o *Options) { o.Texts = []string{text, file("binary", "a\xff")} },
		"text is an LFS stub": func(o *Options) { o.Texts = []string{file("stub", "version https://git-lfs.github.com/spec/v1\n")} },
		"text is too short":   func(o *Options) { o.Tokens = 1000 },
		"window too long":     func(o *Options) { o.Window = 257 },
		"ramp too long":       func(o *Options) { o.Ramp = 20 },
		"no such weights":     func(o *Options) { o.Import = filepath.Join(dir, "none") },
		"weights are a text":  func(o *Options) { o.Import = text },
	} {
		work, out := filepath.Join(t.TempDir(), "w"), filepath.Join(t.TempDir(), "b.np")
		o := Options{Checkpoint: open(t), Out: out, KMax: 10, Texts: []string{text}}
		change(&o)
		if _, err := Run(context.Background(), &stage.Env{Work: work}, o); !errors.Is(err, format.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
		for _, path := range []string{work, out} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s: work was begun", name)
			}
		}
	}
}

// So is a tokenizer that nprun would refuse, whatever kind of bundle it is for; a chat template that it would refuse is warned of.
func TestTokenizerIsTriedBeforeTheFirstStage(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("some words to calibrate with"), 0o666); err != nil {
		t.Fatal(err)
	}
	checkpointOf := func(change func(m *ct.Model)) *checkpoint.Checkpoint {
		c, err := checkpoint.Open(ct.Dir(t, change))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for want, change := range map[string]func(tok map[string]any){
		"cannot run the pattern": func(tok map[string]any) {
			tok["pre_tokenizer"] = map[string]any{"type": "Split", "pattern": map[string]any{"Regex": "(?<a"}, "behavior": "Isolated", "invert": false}
		},
		`pre_tokenizer "BertPreTokenizer"`: func(tok map[string]any) { tok["pre_tokenizer"] = map[string]any{"type": "BertPreTokenizer"} },
		"no merges":                        func(tok map[string]any) { delete(tok["model"].(map[string]any), "merges") },
	} {
		c := checkpointOf(func(m *ct.Model) { m.Tokenizer = change })
		for _, dense := range []bool{true, false} {
			work, out := filepath.Join(t.TempDir(), "w"), filepath.Join(t.TempDir(), "b.np")
			_, err := Run(context.Background(), &stage.Env{Work: work}, Options{Checkpoint: c, Out: out, Dense: dense, KMax: 10, Texts: []string{text}})
			if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "tokenizer.json") {
				t.Errorf("%s, dense %v: %v", want, dense, err)
			}
			for _, path := range []string{work, out} {
				if _, err := os.Stat(path); err == nil {
					t.Errorf("%s, dense %v: work was begun", want, dense)
				}
			}
		}
	}
	for template, warned := range map[string]bool{"{{ messages[0].content }}": false, "{{ messages | frobnicate }}": true} {
		c := checkpointOf(func(m *ct.Model) { m.Files = map[string]string{"chat_template.jinja": template} })
		var log bytes.Buffer
		if _, err := Run(context.Background(), &stage.Env{Work: t.TempDir(), Log: &log}, Options{Checkpoint: c, Out: filepath.Join(t.TempDir(), "b.np"), Dense: true}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "warning: "+c.Dir) && strings.Contains(log.String(), "frobnicate"); got != warned {
			t.Errorf("%s: %q", template, &log)
		}
	}
}

// Places where nothing could be published are refused then, too.
func TestPlacesAreRefusedBeforeTheFirstStage(t *testing.T) {
	dir := t.TempDir()
	file, foreign, link := filepath.Join(dir, "file"), filepath.Join(dir, "foreign"), filepath.Join(dir, "link")
	err := errors.Join(os.WriteFile(file, nil, 0o666), os.MkdirAll(filepath.Join(foreign, "mine"), 0o777), os.Symlink(filepath.Join(dir, "none"), link))
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "w")
	for _, c := range []struct {
		work, out string
		kind      error
	}{
		{work, file, format.ErrInput},
		{work, foreign, format.ErrInput},
		{work, link, format.ErrInput},
		{work, "/", format.ErrInput},
		{work, work, format.ErrInput},
		{filepath.Join(work, "in"), work, format.ErrInput},
		{work, filepath.Join(file, "b.np"), format.ErrIO},
	} {
		_, err := Run(context.Background(), &stage.Env{Work: c.work}, Options{Checkpoint: open(t), Out: c.out, Dense: true})
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", c.out, err)
		}
		if _, err := os.Stat(work); err == nil {
			t.Fatalf("%s: work was begun", c.out)
		}
	}
	// a place that is still to be made, and a work folder above it
	if _, err := Run(context.Background(), &stage.Env{Work: work}, Options{Checkpoint: open(t), Out: filepath.Join(work, "new", "b.np"), Dense: true}); err != nil {
		t.Error(err)
	}
}

// A failing stage stops the run, and the reports of those before it are kept.
func TestStopsAtTheFirstFailure(t *testing.T) {
	c, err := checkpoint.Open(ct.Dir(t, func(m *ct.Model) {
		m.NormDType = "F32"
		m.Edit = func(ts []ct.Tensor) []ct.Tensor {
			ct.Find(ts, "model.layers.1.post_attention_layernorm.weight").Set(3, 3e38)
			return ts
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("some words to calibrate with"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.np")
	rs, err := Run(context.Background(), &stage.Env{Work: t.TempDir()}, Options{Checkpoint: c, Out: out, KMax: 10, Texts: []string{text}})
	if !errors.Is(err, format.ErrInput) || len(rs) != 1 || rs[0].Stage != "repack" {
		t.Errorf("%v, %+v", err, rs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published")
	}
}

func TestStagesHaveTheirNames(t *testing.T) {
	for _, s := range Stages {
		if f, ok := Find(s.Name); !ok || f.Name != s.Name {
			t.Errorf("%s is not found", s.Name)
		}
	}
	if _, ok := Find("eval"); ok {
		t.Error("found what is not there")
	}
}
