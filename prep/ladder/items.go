package ladder

import (
	"context"
	"errors"
	"fmt"

	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/eval"
)

// question is an item as a strip: its context once, then every ending from there.
type question struct {
	item eval.Item
	ends []int // where the targets of each ending end
}

// prefixChunk is how many tokens of the shots pass the layers at a time.
const prefixChunk = 512

// questions makes strips of items, and of the beginning that all of them share, if there are shots.
func questions(encode func(string) []int32, items, shots []eval.Item, limit int) (prefix, strips []*strip, qs []question) {
	all := make([][]eval.Choice, len(items))
	shared := -1
	var first []int32
	for i, item := range items {
		all[i] = eval.Choices(encode, shots, item, limit)
		c := common(all[i])
		if i == 0 {
			first, shared = all[0][0].IDs, c-1
			continue
		}
		n := 0
		for n < min(shared, c-1) && first[n] == all[i][0].IDs[n] {
			n++
		}
		shared = n
	}
	if len(shots) == 0 {
		shared = 0
	}
	for at := 0; at < shared; at += prefixChunk {
		n := min(prefixChunk, shared-at)
		prefix = append(prefix, &strip{ids: first[at : at+n], parts: []part{{n: n, pos: at}}, fresh: at == 0})
	}
	for i := range items {
		st, q := ask(items[i], all[i], shared)
		strips, qs = append(strips, st), append(qs, q)
	}
	return prefix, strips, qs
}

// common is how many tokens the choices share before their endings, at least one.
func common(cs []eval.Choice) int {
	n := len(cs[0].IDs)
	for _, c := range cs {
		n = min(n, c.From, len(c.IDs))
	}
	for at := 0; at < n; at++ {
		for _, c := range cs {
			if c.IDs[at] != cs[0].IDs[at] {
				return max(1, at)
			}
		}
	}
	return max(1, n)
}

// ask makes the strip of an item whose first skip tokens are in the cache.
func ask(item eval.Item, cs []eval.Choice, skip int) (*strip, question) {
	base := common(cs)
	st := &strip{ids: append([]int32(nil), cs[0].IDs[skip:base]...), parts: []part{{n: base - skip, pos: skip}}, fresh: true}
	q := question{item: item}
	for _, c := range cs {
		from, begin := len(st.ids), max(base, len(c.IDs)-1)
		st.ids = append(st.ids, c.IDs[min(base, begin):begin]...)
		st.parts = append(st.parts, part{n: len(st.ids) - from, pos: base, fork: true})
		for at := c.From; at < len(c.IDs); at++ {
			row := at - 1 - skip // in the context
			if at > base {
				row = from + at - 1 - base
			}
			st.rows, st.targets = append(st.rows, row), append(st.targets, c.IDs[at])
		}
		q.ends = append(q.ends, len(st.rows))
	}
	return st, q
}

// sums are the log-probabilities of the endings.
func (q *question) sums(a *answer) []float64 {
	out := make([]float64, len(q.ends))
	at := 0
	for i, end := range q.ends {
		for ; at < end; at++ {
			out[i] += a.logProbs[at]
		}
	}
	return out
}

// items answers the questions that the states lack. The slot maps of every item begin as the shots left them.
func (r *runner) items(ctx context.Context, prefix []*strip, qs []question, dense *state, states []*state, p *stage.Progress) error {
	todo, begin := max(0, len(qs)-len(dense.Items)), len(dense.Items)
	for _, s := range states {
		todo += max(0, len(qs)-len(s.Items))
		begin = min(begin, len(s.Items))
	}
	if todo == 0 {
		return nil
	}
	p.Start("items", int64(todo), "items")
	defer p.Done()
	for first := begin; first < len(qs); {
		var open []Rung
		for i, s := range states {
			if len(s.Items) < len(qs) {
				open = append(open, r.rungs[i])
			}
		}
		w := wantsOf(open, r.sels)
		n := r.groupLen(first, &w)
		shots, group, err := r.exactItems(ctx, prefix, first, n, qs, &w, dense, p)
		if err != nil {
			return err
		}
		for i, s := range states {
			if len(s.Items) >= first+n {
				continue
			}
			err := r.answer(ctx, i, s, shots, group[len(s.Items)-first:], qs, p)
			if err := errors.Join(err, s.save()); err != nil {
				return fmt.Errorf("%s: %w", r.rungs[i], err)
			}
		}
		first += n
	}
	return nil
}

// exactItems runs the exact passes of the shots and of a group, and the dense rung where it is not there yet.
func (r *runner) exactItems(ctx context.Context, prefix []*strip, first, n int, qs []question, w *wants, dense *state, p *stage.Progress) (shots, group []*shared, err error) {
	lacks := len(dense.Items) < first+n
	defer func() {
		if lacks {
			err = errors.Join(err, dense.save())
		}
	}()
	for _, st := range prefix {
		s, _, err := r.f.pass(ctx, st, w, lacks)
		if err != nil {
			return nil, nil, err
		}
		shots = append(shots, s)
	}
	for at := first; at < first+n; at++ {
		full := at >= len(dense.Items)
		s, a, err := r.f.pass(ctx, r.strips[at], w, full)
		if err != nil {
			return nil, nil, fmt.Errorf("item %d: %w", qs[at].item.Ind, err)
		}
		group = append(group, s)
		if full {
			dense.Items = append(dense.Items, eval.Pick(qs[at].item, qs[at].sums(a)))
			p.Add(1)
		}
	}
	return shots, group, nil
}

// answer lets a rung answer the group's questions.
func (r *runner) answer(ctx context.Context, i int, s *state, shots, group []*shared, qs []question, p *stage.Progress) error {
	pass, err := newPass(r.f, r.rungs[i], r.sels[r.rungs[i].key()], r.f.rows())
	if err != nil {
		return err
	}
	for _, sh := range shots {
		if _, err := pass.run(ctx, sh, nil); err != nil {
			return err
		}
	}
	for _, k := range pass.layers {
		k.start = residents(k.slots)
	}
	for _, sh := range group {
		q := &qs[len(s.Items)]
		a, err := pass.run(ctx, sh, nil)
		if err != nil {
			return fmt.Errorf("item %d: %w", q.item.Ind, err)
		}
		s.Items = append(s.Items, eval.Pick(q.item, q.sums(a)))
		p.Add(1)
	}
	return nil
}
