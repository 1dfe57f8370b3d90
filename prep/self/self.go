package self

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

// Name of the stage and of its folder.
const Name = "self"

// file is the stage's output inside Work/self.
const file = "text.txt"

// MaxTokens is the most text that a model is asked for: more than any other stage looks at.
const MaxTokens = 10_000_000

const (
	sideBySide = 64 // strands at a time: enough that a step's products go at the speed of large ones
	fewest     = 8  // strands for which it is worth to keep all layers in memory
)

// File is the text in a work folder.
func File(work string) string { return filepath.Join(work, Name, file) }

// Options of the self stage.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Tokens     int // of text, at least: as the tokenizer reads it
	Window     int // tokens per strand; 0 = 512, at most the model's context

	most int // strands at a time; 0 = sideBySide. It changes no result.
}

type params struct {
	Tokens, Window int
	Seed           uint64
	Temp, TopP     float64
}

// Check refuses options before anything is run.
func (o Options) Check() error { return o.defaults() }

func (o *Options) defaults() error {
	if o.Tokens < 1 || o.Tokens > MaxTokens {
		return format.Inputf("%d tokens of the model's own text: want 1 to %d", o.Tokens, MaxTokens)
	}
	if o.most == 0 {
		o.most = sideBySide
	}
	var err error
	_, o.Window, err = calib.Sizes(o.Checkpoint.Config, o.Tokens, o.Window)
	return err
}

// Run writes the text.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := o.defaults(); err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{
		Name: Name, Version: 1,
		Inputs: o.Checkpoint.Files(),
		Params: params{o.Tokens, o.Window, e.Seed, temperature, topP},
	}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		return run(ctx, e, o, dir, p)
	})
}

func run(ctx context.Context, e *stage.Env, o Options, dir string, p *stage.Progress) (map[string]any, error) {
	length := min(o.Window, o.Tokens)
	strands := (o.Tokens + length - 1) / length
	tok, err := tokenizer.Load(filepath.Join(o.Checkpoint.Dir, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	n, need, err := room(o, e.Memory, length, min(strands, o.most))
	if err != nil {
		return nil, err
	}
	walker, err := forward.New(o.Checkpoint, e.Pool, 1, e.Memory, need)
	if err != nil {
		return nil, err
	}
	if err := walker.LoadHead(); err != nil {
		return nil, err
	}
	w := newWriter(walker, tok, e.Seed, length, n)
	// The text read again may have fewer tokens than were written: control tokens are left out, and the tokenizer may
	// find longer ones. Then strands are added. A model that writes next to nothing is not asked for ever.
	for most := 4 * (strands + fewest); ; {
		p.Start(Name, int64(strands)*int64(length), "tokens")
		if err := w.units(ctx, dir, strands, p); err != nil {
			return nil, err
		}
		p.Done()
		joined, err := join(dir, strands)
		if err != nil {
			return nil, err
		}
		tokens := len(tok.Encode(joined, false))
		if tokens >= o.Tokens {
			if err := writeText(filepath.Join(dir, file), joined); err != nil {
				return nil, err
			}
			return map[string]any{"tokens": tokens, "written": strands * length, "strands": strands, "side_by_side": n,
				"text_bytes": len(joined), "begins": beginning(joined)}, nil
		}
		if strands >= most {
			return nil, format.Hint(format.Inputf("the model's own text of %d tokens reads as %d, where %d are wanted: it writes next to nothing", strands*length, tokens, o.Tokens),
				"calibrate with --text FILE")
		}
		strands = min(most, strands+(o.Tokens-tokens+length-1)/length)
	}
}

// units writes the strands that are not there.
func (w *writer) units(ctx context.Context, dir string, strands int, p *stage.Progress) error {
	var todo []int
	for i := range strands {
		if calib.Sealed(unit(dir, i)) {
			p.Add(int64(w.length))
			continue
		}
		todo = append(todo, i)
	}
	for len(todo) > 0 {
		now := todo[:min(len(todo), len(w.kvs))]
		todo = todo[len(now):]
		texts, err := w.write(ctx, now, p)
		if err != nil {
			return err
		}
		for j, i := range now {
			if err := writeText(unit(dir, i), texts[j]); err != nil {
				return err
			}
			if err := calib.Seal(unit(dir, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func unit(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf(".strand-%06d.txt", i)) }

func writeText(path, s string) error {
	return format.WriteFileAtomic(path, func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	})
}

// join is the strands' text, one after the other.
func join(dir string, strands int) (string, error) {
	var b strings.Builder
	for i := range strands {
		t, err := format.ReadFile(unit(dir, i), text.MaxTextBytes)
		if err != nil {
			return "", err
		}
		if b.Len()+len(t) > text.MaxTextBytes {
			return "", format.Inputf("the model's own text is longer than %s: lower its tokens", format.IEC(text.MaxTextBytes))
		}
		b.Write(t)
	}
	return b.String(), nil
}

// beginning is the text's first words, for the report.
func beginning(s string) string {
	const most = 60
	line := []rune(strings.Join(strings.Fields(s[:min(len(s), 8*most)]), " "))
	if len(line) > most {
		return string(line[:most]) + " …"
	}
	return string(line)
}

// room is how many strands, at most most, run side by side within a budget (0: none stated), and what they take besides
// the walker. With few strands it is better to keep fewer layers in memory than to run fewer still.
func room(o Options, memory int64, length, most int) (n int, need int64, err error) {
	c := o.Checkpoint.Config
	m := model.New(c, nil)
	const sampler = 24 // bytes per token of the vocabulary: a row of scores and sample's working memory
	each := model.KVBytes(c, c.Layers, length, false) + model.BatchBytes(m, 1) + 4*int64(c.Hidden) + sampler*int64(c.Vocab)
	head := forward.HeadBytes(c)
	if memory == 0 {
		return most, head + int64(most)*each, nil
	}
	fixed := forward.Fixed(c, m, 1) + head
	fit := func(layers int64) int {
		return int(min(int64(most), max(0, memory-fixed-layers*forward.LayerBytes(c))/each))
	}
	if n = fit(int64(c.Layers - 1)); n < min(most, fewest) {
		n = fit(0)
	}
	if n < 1 {
		return 0, 0, format.Hint(format.Fitf("writing calibration text needs %s: embedding, head and one layer %s, a sequence of %d tokens %s; --memory is %s",
			format.IEC(fixed+each), format.IEC(fixed), length, format.IEC(each), format.IEC(memory)), "raise --memory, or calibrate with --text FILE")
	}
	return n, head + int64(n)*each, nil
}
