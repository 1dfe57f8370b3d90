package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
	"neuroprefetcher/runtime/sample"
)

// generate runs a request and holds that the pieces joined are the text.
func generate(t *testing.T, e *engine.Engine, r engine.Request) (engine.Result, []string) {
	t.Helper()
	var pieces []string
	res, err := e.Generate(context.Background(), r, func(s string) { pieces = append(pieces, s) })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(pieces, ""); got != res.Text {
		t.Errorf("the pieces are %q, the text %q", got, res.Text)
	}
	return res, pieces
}

// TestHalfCharacters holds what is said of characters spread over tokens: whole when they are whole, one U+FFFD where
// the text stops in the middle, and what cannot become a character at once.
func TestHalfCharacters(t *testing.T) {
	r := &enginetest.Rig{}
	b := enginetest.Byte
	r.Chain(b('x'), b(0xf0), b(0x9f), b(0x98), b(0x80), b('!'), enginetest.EOS)
	r.Chain(b('y'), b(0xe3), b('A'), b('B'), enginetest.EOS)
	e := enginetest.Open(t, r.Bundle(t), engine.Options{Mode: engine.ModeResident})
	for _, c := range []struct {
		prompt byte
		max    int
		want   []string
	}{
		{'x', 0, []string{"😀", "!"}},
		{'x', 4, []string{"😀"}},
		{'x', 3, []string{"\uFFFD"}},
		{'x', 1, []string{"\uFFFD"}},
		{'y', 0, []string{"\uFFFDA", "B"}},
	} {
		e.Reset()
		_, pieces := generate(t, e, engine.Request{Prompt: []int32{int32(b(c.prompt))}, MaxTokens: c.max})
		if !slices.Equal(pieces, c.want) {
			t.Errorf("%c, %d tokens: %q, want %q", c.prompt, c.max, pieces, c.want)
		}
	}
}

// TestIDsWithoutText holds that a row of the embedding that no token names is generated as no text, and goes on.
func TestIDsWithoutText(t *testing.T) {
	r := &enginetest.Rig{Rows: 384}
	r.Chain(enginetest.Byte('x'), 350, 383, enginetest.Byte('y'), 350)
	dir := r.Bundle(t)
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		res, _ := generate(t, e, engine.Request{Prompt: []int32{int32(enginetest.Byte('x'))}, MaxTokens: 7})
		want := []int32{350, 383, int32(enginetest.Byte('y')), 350, 383, int32(enginetest.Byte('y')), 350}
		if res.Text != "yy" || !slices.Equal(res.IDs, want) || res.Finish != engine.FinishLength {
			t.Errorf("%s: %+v", o.Mode, res)
		}
	}
}

// TestEnds holds why a text ends: the end token is not part of it, ignored or not, and a context that is full is the end.
func TestEnds(t *testing.T) {
	r := &enginetest.Rig{}
	a, b := enginetest.Byte('a'), enginetest.Byte('b')
	r.Chain(a, b, enginetest.EOS, a)
	dir := r.Bundle(t)
	for _, o := range enginetest.Modes() {
		o.Context = 5
		e := enginetest.Open(t, dir, o)
		for _, c := range []struct {
			prompt    int
			max       int
			ignore    bool
			text, end string
			n         int
		}{
			{a, 0, false, "b", engine.FinishStop, 1},
			{b, 0, false, "", engine.FinishStop, 0},
			{a, 1, false, "b", engine.FinishLength, 1},
			{a, 0, true, "bab", engine.FinishLength, 5}, // the last token needs no place in the context
		} {
			e.Reset()
			res, _ := generate(t, e, engine.Request{Prompt: []int32{int32(c.prompt)}, MaxTokens: c.max, IgnoreEOS: c.ignore})
			if res.Text != c.text || res.Finish != c.end || len(res.IDs) != c.n {
				t.Errorf("%s: %+v gave %+v", o.Mode, c, res)
			}
		}
		e.Reset()
		if res, _ := generate(t, e, engine.Request{Prompt: []int32{5, 6, 7, 8, int32(a)}}); res.Text != "b" || e.Len() != 5 {
			t.Errorf("%s: a prompt as long as the context: %+v, %d tokens", o.Mode, res, e.Len())
		}
		e.Reset()
		if _, err := e.Generate(context.Background(), engine.Request{Prompt: []int32{5, 6, 7, 8, 9, 10}}, nil); err == nil || e.Len() != 0 {
			t.Errorf("%s: a prompt longer than the context: %v, %d tokens", o.Mode, err, e.Len())
		}
	}
}

// TestResume holds a conversation that keeps what it has in the cache against one that begins afresh at every turn, and
// that the repetition penalty sees the turns before.
func TestResume(t *testing.T) {
	dir := enginetest.Tiny(t)
	kept, fresh := enginetest.Open(t, dir, engine.Options{Mode: engine.ModeResident}), enginetest.Open(t, dir, engine.Options{Mode: engine.ModeResident})
	for _, p := range []sample.Params{{}, {RepetitionPenalty: 1.3}, {Temp: 0.7, Seed: 4}} {
		kept.Reset()
		var talk []int32
		for turn, more := range [][]int32{{532, 885, 329}, {470, 886, 884, 337}, {515}} {
			talk = append(talk, more...)
			rest := kept.Resume(talk)
			if turn > 0 && len(rest) > len(more)+1 {
				t.Errorf("turn %d: %d of %d tokens run again", turn, len(rest), len(talk))
			}
			got, _ := generate(t, kept, engine.Request{Prompt: rest, MaxTokens: 12, Sample: p})
			fresh.Reset()
			want, _ := generate(t, fresh, engine.Request{Prompt: talk, MaxTokens: 12, Sample: p})
			if got.Text != want.Text || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%+v, turn %d: %q, afresh %q", p, turn, got.Text, want.Text)
			}
			talk = append(talk, got.IDs...)
		}
		// A prompt that parts from the sequence in the middle.
		talk = append(talk[:5:5], 100, 101)
		got, _ := generate(t, kept, engine.Request{Prompt: kept.Resume(talk), MaxTokens: 5})
		fresh.Reset()
		if want, _ := generate(t, fresh, engine.Request{Prompt: talk, MaxTokens: 5}); !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("parted: %v, afresh %v", got.IDs, want.IDs)
		}
	}
}

// TestFailedGeneration holds that scores which are not numbers end a text with an error, in every mode, with what there
// is of it, and that the engine can be used afterwards.
func TestFailedGeneration(t *testing.T) {
	r := &enginetest.Rig{NaN: []int{enginetest.Byte('c')}}
	r.Chain(enginetest.Byte('a'), enginetest.Byte('b'), enginetest.Byte('c'))
	r.Chain(enginetest.Byte('x'), enginetest.Byte('y'), enginetest.EOS)
	dir := r.Bundle(t)
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		res, err := e.Generate(context.Background(), engine.Request{Prompt: []int32{int32(enginetest.Byte('a'))}}, nil)
		if !errors.Is(err, sample.ErrNonFinite) || res.Text != "bc" {
			t.Errorf("%s: %+v, %v", o.Mode, res, err)
		}
		e.Reset()
		if res, _ := generate(t, e, engine.Request{Prompt: []int32{int32(enginetest.Byte('x'))}}); res.Text != "y" {
			t.Errorf("%s: afterwards: %+v", o.Mode, res)
		}
	}
}
