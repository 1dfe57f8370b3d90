package engine

import (
	"context"
	"slices"

	"neuroprefetcher/runtime/sample"
)

// Why a generation ended.
const (
	FinishStop   = "stop"   // the model ended its text
	FinishLength = "length" // --max-tokens or the context is used up
)

// Request is one generation. It continues the engine's sequence.
type Request struct {
	Prompt    []int32
	MaxTokens int // 0 is as many as the context holds
	Sample    sample.Params
	IgnoreEOS bool
}

// Result is what was generated; the token that ended it is not part of it.
type Result struct {
	IDs    []int32
	Text   string
	Finish string
}

// Generate runs the prompt and then token after token. emit, if any, gets the text as it becomes certain, the pieces
// joined being Result.Text. On an error or a cancelled ctx the result holds what there is.
func (e *Engine) Generate(ctx context.Context, r Request, emit func(text string)) (res Result, err error) {
	res.Finish = FinishLength
	sampler, err := sample.New(r.Sample)
	if err != nil {
		return res, err
	}
	logits, err := e.Prefill(ctx, r.Prompt)
	if err != nil {
		return res, err
	}
	out := e.Tokenizer.NewStream(true)
	say := func(text string) {
		if text != "" {
			res.Text += text
			if emit != nil {
				emit(text)
			}
		}
	}
	defer func() { say(out.Flush()) }()
	history := slices.Clone(e.seq) // the penalty sees what came before this prompt too
	for r.MaxTokens <= 0 || len(res.IDs) < r.MaxTokens {
		id, err := sampler.Sample(logits, history)
		if err != nil {
			return res, err
		}
		if !r.IgnoreEOS && slices.Contains(e.Config.EOS, int(id)) {
			res.Finish = FinishStop
			return res, nil
		}
		res.IDs, history = append(res.IDs, id), append(history, id)
		say(out.Push(id))
		if e.Len() == e.Context() || len(res.IDs) == r.MaxTokens {
			break
		}
		if logits, err = e.Step(ctx, id); err != nil {
			return res, err
		}
	}
	return res, nil
}

// Resume prepares the engine for a prompt that may begin with the sequence it already holds: it keeps the common
// beginning, forgets the rest, and returns what is left to run, at least one token.
func (e *Engine) Resume(ids []int32) []int32 {
	n := 0
	for n < len(ids)-1 && n < len(e.seq) && ids[n] == e.seq[n] {
		n++
	}
	e.rewind(n)
	return ids[n:]
}
