package ladder

import (
	"context"
	"errors"
	"fmt"

	"neuroprefetcher/prep/stage"
)

// windows cuts ids as runtime/eval does: without overlap, the last as long as it comes. The last token of a window is a
// target only.
func windows(ids []int32, window, most int, bos []int32) []*strip {
	step := window - len(bos)
	total := (len(ids) + step - 1) / step
	if most > 0 {
		total = min(total, most)
	}
	var out []*strip
	for i := range total {
		w := append(bos[:len(bos):len(bos)], ids[i*step:min((i+1)*step, len(ids))]...)
		if len(w) < 2 {
			break
		}
		st := &strip{ids: w[:len(w)-1], targets: w[1:], parts: []part{{n: len(w) - 1}}}
		for r := range st.ids {
			st.rows = append(st.rows, r)
		}
		out = append(out, st)
	}
	return out
}

// runner takes rungs over strips, group by group, so that what rungs share of a strip is computed once.
type runner struct {
	f      *forward
	rungs  []Rung
	sels   map[selKey]*selector
	group  int64 // bytes that may be kept of a group's exact passes
	strips []*strip
}

// groupLen is how many strips from first on make a group.
func (r *runner) groupLen(first int, w *wants) int {
	n, used := 0, int64(0)
	for first+n < len(r.strips) && (n == 0 || used < r.group) {
		used += w.bytes(r.f.w.c.Hidden) * int64(len(r.strips[first+n].ids))
		n++
	}
	return n
}

// text runs the windows that the states lack. dense is the exact rung's state.
func (r *runner) text(ctx context.Context, dense *state, states []*state, p *stage.Progress) error {
	todo := max(0, len(r.strips)-len(dense.Windows))
	begin := len(dense.Windows)
	for _, s := range states {
		todo += max(0, len(r.strips)-len(s.Windows))
		begin = min(begin, len(s.Windows))
	}
	if todo == 0 {
		return nil
	}
	p.Start("text", int64(todo), "windows")
	defer p.Done()
	passes := make([]*pass, len(states))
	for first := begin; first < len(r.strips); {
		var open []Rung
		for i, s := range states {
			if len(s.Windows) < len(r.strips) {
				open = append(open, r.rungs[i])
			}
		}
		w := wantsOf(open, r.sels)
		n := r.groupLen(first, &w)
		group, err := r.exactGroup(ctx, first, n, &w, dense, p)
		if err != nil {
			return err
		}
		for i, s := range states {
			if len(s.Windows) >= first+n {
				continue
			}
			if passes[i] == nil {
				if passes[i], err = r.resume(i, s); err != nil {
					return err
				}
			}
			err := r.windows(ctx, passes[i], s, group[len(s.Windows)-first:], dense, p)
			if err := errors.Join(err, s.save()); err != nil {
				return fmt.Errorf("%s: %w", r.rungs[i], err)
			}
		}
		first += n
	}
	return nil
}

// windows measures a rung on the next windows of a group. What it got to before an error is in the state.
func (r *runner) windows(ctx context.Context, pass *pass, s *state, group []*shared, dense *state, p *stage.Progress) error {
	for _, sh := range group {
		at := len(s.Windows)
		if err := pass.window(ctx, sh, dense.Top[at], dense.LogProbs[at], s); err != nil {
			return fmt.Errorf("window %d: %w", at, err)
		}
		s.Resident = nil
		for _, k := range pass.layers {
			s.Resident = append(s.Resident, residents(k.slots))
		}
		p.Add(1)
	}
	return nil
}

// exactGroup runs the exact passes of a group, and the dense rung where it is not there yet.
func (r *runner) exactGroup(ctx context.Context, first, n int, w *wants, dense *state, p *stage.Progress) (group []*shared, err error) {
	had := len(dense.Windows)
	defer func() {
		if len(dense.Windows) > had {
			err = errors.Join(err, dense.save())
		}
	}()
	for at := first; at < first+n; at++ {
		full := at >= len(dense.Windows)
		s, a, err := r.f.pass(ctx, r.strips[at], w, full)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", at, err)
		}
		group = append(group, s)
		if full {
			t := newTally(0)
			exact := narrow(a.logProbs)
			t.take(a, a.top, exact)
			t.Drift = nil
			dense.Windows, dense.Top, dense.LogProbs = append(dense.Windows, t), append(dense.Top, a.top), append(dense.LogProbs, exact)
			p.Add(1)
		}
	}
	return group, nil
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// take adds an answer, held against the dense rung's likeliest tokens and log-probabilities.
func (ty *tally) take(a *answer, dense []int32, exact []float32) {
	ty.Drift = new(float64)
	for i, v := range a.logProbs {
		d := v - float64(exact[i])
		*ty.Drift += d * d
		ty.NLL -= v
		if a.top[i] == dense[i] {
			ty.Agree++
		}
	}
	ty.Scored += len(a.logProbs)
}

// resume makes a pass with the slot maps as the state left them.
func (r *runner) resume(i int, s *state) (*pass, error) {
	p, err := newPass(r.f, r.rungs[i], r.sels[r.rungs[i].key()], r.f.rows())
	if err != nil {
		return nil, err
	}
	for l, ids := range s.Resident {
		p.layers[l].restore(ids)
	}
	return p, nil
}

// rows is the longest strip.
func (f *forward) rows() int { return f.batch.MaxT }

// window measures one window.
func (p *pass) window(ctx context.Context, s *shared, dense []int32, exact []float32, to *state) error {
	ty := newTally(len(p.layers))
	a, err := p.run(ctx, s, ty)
	if err != nil {
		return err
	}
	ty.take(a, dense, exact)
	to.Windows = append(to.Windows, ty)
	return nil
}
