package chat

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/tokenizer"
)

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

// Template is a parsed chat template. It may be used by many goroutines; renderings take turns.
type Template struct {
	mu       sync.Mutex
	template *exec.Template
	source   string
	bos, eos string
	now      func() time.Time
}

// RaisedError is what a template says through raise_exception: the conversation is not one that it can render.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return "chat template: " + e.Message }

const rootName = "chat_template"

// New parses a template. bos and eos are the texts that it knows as bos_token and eos_token.
func New(template string, bos, eos string) (*Template, error) {
	source := plainGeneration(template)
	if err := checkSource(source); err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks, cfg.LeftStripBlocks = true, true
	t := &Template{source: source, bos: bos, eos: eos, now: time.Now}
	err := recovered(func() (err error) {
		t.template, err = exec.NewTemplate(rootName, cfg, onlyRoot(source), newEnvironment())
		return err
	})
	if err == nil {
		err = t.try()
	}
	if err != nil {
		return nil, format.Hint(format.Inputf("chat template: %s", firstLine(err, source)), "the template uses what is not supported; use raw completions, or a simpler template")
	}
	return t, nil
}

// try renders two conversations that every template knows, so that what the engine cannot do shows at start and not at the first request.
func (t *Template) try() error {
	for _, msgs := range [][]Message{{{"user", "a"}}, {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}} {
		var raised *RaisedError
		if _, err := t.Render(msgs, true); err != nil && !errors.As(err, &raised) {
			return errors.New(strings.TrimPrefix(err.Error(), "chat template: "))
		}
	}
	return nil
}

// roles are those that templates know. Others are refused: templates build control tokens from role names, and a client could name one "end".
var roles = []string{"system", "user", "assistant", "developer", "tool", "function", "ipython"}

// Render returns the prompt for a conversation. Encode it with tokenizer.Encode(text, false): the template prints the BOS where one belongs.
// When messages come from outside, use RenderSegments.
func (t *Template) Render(msgs []Message, addGenerationPrompt bool) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := newGuard()
	turns := make(list, len(msgs))
	for i, m := range msgs {
		if !slices.Contains(roles, m.Role) {
			return "", format.Inputf("message %d: role %.40q is not one of %s", i, m.Role, strings.Join(roles, ", "))
		}
		turns[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	data := exec.NewContext(map[string]any{
		guardKey: g, "messages": turns, "add_generation_prompt": addGenerationPrompt, "bos_token": t.bos, "eos_token": t.eos,
		"raise_exception": func(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
			if g.raised == nil {
				g.raised = &RaisedError{}
				if len(args.Args) > 0 {
					g.raised.Message = args.Args[0].String()
				}
			}
			return exec.AsValue(error(g.raised))
		},
		"strftime_now": func(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
			if len(args.Args) != 1 {
				return exec.AsValue(fmt.Errorf("strftime_now takes one argument"))
			}
			text, err := strftime(t.now(), args.Args[0].String())
			if err != nil {
				return exec.AsValue(err)
			}
			return exec.AsValue(text)
		},
	})
	var out strings.Builder
	err := recovered(func() error { return t.template.Execute(&limitWriter{&out, g}, data) })
	switch {
	case g.raised != nil:
		return "", format.Inputf("%w", g.raised)
	case g.failed != nil:
		return "", format.Inputf("chat template: %w", g.failed)
	case err != nil:
		return "", format.Inputf("chat template: %s", firstLine(err, t.source))
	}
	return out.String(), nil
}

// RenderSegments renders like Render and marks as plain where message contents spell a control token. control lists the control tokens' texts
// (tokenizer.ControlTokens). The segments' texts, joined, are what Render returns; conversations without such spellings give one segment.
//
// How: a rune that occurs nowhere else is put behind the first rune of every such spelling, comes out of the template where the spelling does, and
// is taken away again. The template sees contents without control tokens unchanged, so it may trim, cut and compare them as it likes.
func (t *Template) RenderSegments(msgs []Message, addGenerationPrompt bool, control []string) ([]tokenizer.Segment, error) {
	marked := make([]Message, len(msgs))
	var mark string
	for i, m := range msgs {
		marked[i] = m
		if !spells(m.Content, control) {
			continue
		}
		if mark == "" {
			var err error
			if mark, err = unusedRune(t.source, t.bos, t.eos, msgs); err != nil {
				return nil, err
			}
		}
		marked[i].Content = markSpellings(m.Content, control, mark)
	}
	text, err := t.Render(marked, addGenerationPrompt)
	if err != nil {
		if mark != "" && strings.Contains(err.Error(), mark) {
			err = format.Inputf("%s", strings.ReplaceAll(err.Error(), mark, ""))
		}
		return nil, err
	}
	if mark == "" {
		return []tokenizer.Segment{{Text: text}}, nil
	}
	var segs []tokenizer.Segment
	parts := strings.Split(text, mark)
	for i, p := range parts {
		if i == len(parts)-1 {
			segs = append(segs, tokenizer.Segment{Text: p})
			break
		}
		_, n := utf8.DecodeLastRuneInString(p) // no control token may touch this rune
		segs = append(segs, tokenizer.Segment{Text: p[:len(p)-n]}, tokenizer.Segment{Text: p[len(p)-n:], Plain: true})
	}
	return segs, nil
}

// Encode renders a conversation and encodes it, with the users' control tokens kept text.
func (t *Template) Encode(tok *tokenizer.Tokenizer, msgs []Message, addGenerationPrompt bool) ([]int32, error) {
	segs, err := t.RenderSegments(msgs, addGenerationPrompt, tok.ControlTokens())
	if err != nil {
		return nil, err
	}
	return tok.EncodeSegments(segs, false), nil
}

func spells(s string, control []string) bool {
	for _, c := range control {
		if c != "" && strings.Contains(s, c) {
			return true
		}
	}
	return false
}

// markSpellings puts mark behind the first rune of every place where a control token starts, overlapping ones too.
func markSpellings(s string, control []string, mark string) string {
	var out strings.Builder
	for i := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		out.WriteString(s[i : i+n])
		for _, c := range control {
			if c != "" && strings.HasPrefix(s[i:], c) {
				out.WriteString(mark)
				break
			}
		}
	}
	return out.String()
}

// unusedRune returns a noncharacter or private-use rune that occurs in none of the texts.
func unusedRune(source, bos, eos string, msgs []Message) (string, error) {
	used := func(c string) bool {
		if strings.Contains(source, c) || strings.Contains(bos, c) || strings.Contains(eos, c) {
			return true
		}
		for _, m := range msgs {
			if strings.Contains(m.Content, c) {
				return true
			}
		}
		return false
	}
	for r := rune(0xFDD0); r <= 0xFDEF; r++ {
		if c := string(r); !used(c) {
			return c, nil
		}
	}
	for r := rune(0xF0000); r <= 0xF0FFF; r++ {
		if c := string(r); !used(c) {
			return c, nil
		}
	}
	return "", format.Inputf("messages: they use every private-use character")
}

// generationTag matches the tags that only mark spans for training.
var generationTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}`) })

// plainGeneration turns generation blocks into if blocks, which keep the same white space.
func plainGeneration(source string) string {
	if !strings.Contains(source, "generation") {
		return source
	}
	return generationTag().ReplaceAllStringFunc(source, func(tag string) string {
		m := generationTag().FindStringSubmatch(tag)
		if m[2] != "" {
			return "{%" + m[1] + " endif " + m[3] + "%}"
		}
		return "{%" + m[1] + " if true " + m[3] + "%}"
	})
}

// onlyRoot is a loader that knows one template and no files.
type onlyRoot string

func (l onlyRoot) Read(path string) (io.Reader, error) {
	if path != rootName {
		return nil, fmt.Errorf("other templates are not supported")
	}
	return strings.NewReader(string(l)), nil
}
func (l onlyRoot) Resolve(path string) (string, error)    { return path, nil }
func (l onlyRoot) Inherit(string) (loaders.Loader, error) { return l, nil }

// recovered turns a panic of the engine into an error.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the template engine failed: %v", p)
		}
	}()
	return f()
}

// firstLine makes one short line of the engine's errors, which quote whole templates.
func firstLine(err error, source string) string {
	text := strings.ReplaceAll(err.Error(), source, "…")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:140], "") + " … " + strings.ToValidUTF8(text[len(text)-140:], "")
	}
	return text
}
