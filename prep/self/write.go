package self

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/sample"
	"neuroprefetcher/runtime/tokenizer"
)

// How the next token is chosen: as the model weighs them, without the unlikely tail, from which it does not find back.
const (
	temperature = 1.0
	topP        = 0.95
)

// strand is a stretch of the text.
type strand struct {
	rng     *rand.Rand
	sampler *sample.Sampler
	kv      *model.KV
	forced  []int32 // first tokens of the document that are not yet run
	doc     []int32 // the document's tokens so far, those forced in it
	text    strings.Builder
	next    int32 // to be run
	pos     int   // its position
	left    int   // tokens to come
	err     error
}

// writer runs strands side by side.
type writer struct {
	walker *forward.Walker
	tok    *tokenizer.Tokenizer
	starts starts
	seed   uint64
	length int // tokens of a strand
	many   *model.Many
	kvs    []*model.KV
	x      []float32 // (n, H)
	logits []float32 // (n, vocab)
}

// newWriter has room for n strands at a time.
func newWriter(w *forward.Walker, tok *tokenizer.Tokenizer, seed uint64, length, n int) *writer {
	c := w.Model.Config
	wr := &writer{walker: w, tok: tok, starts: newStarts(c, tok), seed: seed, length: length, many: w.Model.NewMany(n),
		x: make([]float32, n*c.Hidden), logits: make([]float32, n*c.Vocab)}
	for range n {
		wr.kvs = append(wr.kvs, model.NewKV(c, c.Layers, length, false))
	}
	return wr
}

// begin is strand number i.
func (w *writer) begin(i int, kv *model.KV) (*strand, error) {
	rng := rand.New(rand.NewPCG(w.seed, 0x73656c66<<32|uint64(i)))
	sampler, err := sample.New(sample.Params{Temp: temperature, TopP: topP, Seed: rng.Uint64()})
	if err != nil {
		return nil, err
	}
	s := &strand{rng: rng, sampler: sampler, kv: kv, left: w.length}
	w.document(s)
	return s, nil
}

// document begins a new one.
func (w *writer) document(s *strand) {
	s.forced = w.starts.draw(s.rng, s.forced[:0])
	s.next, s.forced, s.pos, s.doc = s.forced[0], s.forced[1:], 0, s.doc[:0]
	s.take()
}

// take counts the next token as written.
func (s *strand) take() {
	s.doc = append(s.doc, s.next)
	s.left--
}

// end puts the document's text, without control tokens, on lines of its own. Documents are told apart by a blank line.
func (w *writer) end(s *strand) {
	if t := strings.TrimSpace(strings.ToValidUTF8(w.tok.Decode(s.doc, true), "")); t != "" {
		s.text.WriteString(t)
		s.text.WriteString("\n\n")
	}
}

// write returns the texts of strands, as many as there is room for.
func (w *writer) write(ctx context.Context, numbers []int, p *stage.Progress) ([]string, error) {
	c, n := w.walker.Model.Config, len(numbers)
	strands := make([]*strand, n)
	for i, number := range numbers {
		var err error
		if strands[i], err = w.begin(number, w.kvs[i]); err != nil {
			return nil, err
		}
	}
	p.Add(int64(n))
	ids, pos, caches := make([]int32, n), make([]int, n), make([]model.LayerKV, n)
	for range w.length - 1 { // the last token need not be run
		for i, s := range strands {
			ids[i], pos[i] = s.next, s.pos
		}
		x := w.x[:n*c.Hidden]
		w.walker.Model.EmbedTokens(x, ids)
		for l := range c.Layers {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			layer, rows, err := w.walker.Load(l)
			if err != nil {
				return nil, err
			}
			for i, s := range strands {
				caches[i] = s.kv.Layers[l]
			}
			w.many.Attention(layer, x, caches, pos)
			w.many.MLP(layer, rows, x, n, nil)
		}
		w.many.Logits(w.logits, x, 0, n)
		w.walker.Model.Pool.Run(n, 1, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				w.step(strands[i], w.logits[i*c.Vocab:(i+1)*c.Vocab])
			}
		})
		for i, s := range strands {
			if errors.Is(s.err, sample.ErrNonFinite) {
				return nil, format.Hint(format.Inputf("strand %d: the model's scores are not finite at position %d of its own text: %w", numbers[i], s.pos, s.err),
					"the checkpoint's weights overflow; check that it is whole")
			}
			if s.err != nil {
				return nil, s.err
			}
		}
		p.Add(int64(n))
	}
	texts := make([]string, n)
	for i, s := range strands {
		w.end(s)
		texts[i] = s.text.String()
	}
	return texts, nil
}

// step chooses the token after the one that was run.
func (w *writer) step(s *strand, logits []float32) {
	s.pos++
	if len(s.forced) > 0 {
		s.next, s.forced = s.forced[0], s.forced[1:]
		s.take()
		return
	}
	id, err := s.sampler.Sample(logits, nil)
	if err != nil {
		s.err = err
		return
	}
	if slices.Contains(w.walker.Model.Config.EOS, int(id)) {
		w.end(s)
		w.document(s)
		return
	}
	s.next = id
	s.take()
}
