package serve

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/sample"
)

// choice is an answer in progress: what is held back by a stop string, and the tokens that wait with their text.
type choice struct {
	j       *job
	index   int
	stop    stopper
	made    int // bytes of the text so far, held back or not
	chars   int // characters of it, and of the echo before it
	out     int // bytes let through
	waiting []tokenInfo
}

// push takes a token's text, and its log-probabilities if they were asked for; it reports whether a stop string ended the text.
func (c *choice) push(text string, info *tokenInfo) (hit bool) {
	if info != nil {
		info.start, info.startCh = c.made, c.chars
		c.waiting = append(c.waiting, *info)
	}
	c.made += len(text)
	c.chars += utf8.RuneCountInString(text)
	certain, hit := c.stop.push(text)
	c.let(certain, !hit && c.out+len(certain) == c.made)
	if hit {
		c.waiting = nil
	}
	return hit
}

// let lets text through, with the tokens that begin before its end; with all, those that begin at it too.
func (c *choice) let(text string, all bool) {
	c.out += len(text)
	n := 0
	for n < len(c.waiting) && (c.waiting[n].start < c.out || all) {
		n++
	}
	if text == "" && n == 0 {
		return
	}
	c.j.emit(event{choice: c.index, text: text, tokens: slices.Clone(c.waiting[:n])})
	c.waiting = c.waiting[n:]
}

// end lets the rest through and says why the text ended.
func (c *choice) end(tail, finish string, hit bool) {
	if !hit {
		hit = c.push(tail, nil)
		if hit {
			finish = engine.FinishStop
		} else {
			c.let(c.stop.flush(), true)
		}
	}
	c.j.emit(event{choice: c.index, finish: finish})
}

// answer generates choice i of prompt p. It is Engine.Generate with the API's additions, and gives the same text.
func (s *Server) answer(j *job, p, i int) error {
	e, pr := s.e, j.prompts[p]
	c := &choice{j: j, index: p*j.p.n + i, stop: stopper{stops: j.p.stops}}
	params := j.p.sample
	params.Seed += uint64(i)
	sampler, err := sample.New(params)
	if err != nil {
		return err
	}
	logits, err := s.prompt(j, p, i, c)
	if err != nil {
		return err
	}
	out := e.Tokenizer.NewStream(true)
	history := slices.Clone(pr.ids)
	counts := map[int32]int{}
	finish, hit := engine.FinishLength, false
	for n := 0; j.p.maxTokens < 0 || n < j.p.maxTokens; {
		id, err := sampler.Sample(s.adjust(&j.p, logits, counts), history)
		if errors.Is(err, sample.ErrNonFinite) {
			return fmt.Errorf("%s mode, position %d: %w", e.Plan.Mode, e.Len(), err)
		}
		if err != nil {
			return err
		}
		if !j.p.ignoreEOS && slices.Contains(e.Config.EOS, int(id)) {
			if j.echo && j.p.top >= 0 {
				// Evaluation clients ask for one token behind an echo and leave the last log-probability out: there must be one.
				info := &tokenInfo{id: id}
				info.lp, info.top = model.Rank(logits, id, j.p.top, nil)
				c.push("", info)
			}
			finish = engine.FinishStop
			break
		}
		n++
		j.generated++
		s.m.generated.Add(1)
		history = append(history, id)
		counts[id]++
		var info *tokenInfo
		if j.p.top >= 0 {
			info = &tokenInfo{id: id}
			info.lp, info.top = model.Rank(logits, id, j.p.top, nil)
		}
		if hit = c.push(out.Push(id), info); hit {
			finish = engine.FinishStop
			break
		}
		if e.Len() == e.Context() || n == j.p.maxTokens {
			break
		}
		if logits, err = e.Step(j.ctx, id); err != nil {
			return err
		}
		s.afterStep()
	}
	c.end(out.Flush(), finish, hit)
	return nil
}

// prompt runs a choice's prompt, as much of it as the cache does not hold, and echoes it when that is asked for.
func (s *Server) prompt(j *job, p, i int, c *choice) (logits []float32, err error) {
	e, pr := s.e, j.prompts[p]
	if !j.p.cache {
		e.Reset()
	}
	var scored []engine.Scored
	scoring := j.echo && j.p.top >= 0
	switch {
	case scoring:
		logits, scored, err = e.PrefillScored(j.ctx, pr.ids, j.p.top, s.afterStep)
	case j.p.maxTokens != 0:
		rest := e.Resume(pr.ids)
		if i == 0 {
			j.cached += len(pr.ids) - len(rest)
		}
		s.m.cached.Add(int64(len(pr.ids) - len(rest)))
		logits, err = e.Prefill(j.ctx, rest)
	}
	if err != nil {
		return nil, err
	}
	s.afterPrompt()
	if !j.echo {
		return logits, nil
	}
	var infos []tokenInfo
	if scoring {
		text := e.Tokenizer.NewStream(true)
		for k, id := range pr.ids {
			info := tokenInfo{id: id, lp: math.NaN(), startCh: c.chars}
			if k > 0 {
				info.lp, info.top = scored[k-1].LogProb, scored[k-1].Top
				if math.IsNaN(info.lp) || math.IsInf(info.lp, 0) {
					return nil, fmt.Errorf("%s mode, prompt token %d has log-probability %v: %w", e.Plan.Mode, k, info.lp, sample.ErrNonFinite)
				}
			}
			c.chars += utf8.RuneCountInString(text.Push(id))
			infos = append(infos, info)
		}
	}
	c.chars = utf8.RuneCountInString(pr.text)
	j.emit(event{choice: c.index, text: pr.text, tokens: infos})
	return logits, nil
}

// adjust returns logits with biases and penalties, in memory of its own when there are any.
func (s *Server) adjust(p *params, logits []float32, counts map[int32]int) []float32 {
	if len(p.bias) == 0 && p.presence == 0 && p.frequency == 0 {
		return logits
	}
	s.adjusted = append(s.adjusted[:0], logits...)
	for id, b := range p.bias {
		s.adjusted[id] += b
	}
	for id, n := range counts {
		s.adjusted[id] -= float32(p.presence + p.frequency*float64(n))
	}
	return s.adjusted
}
