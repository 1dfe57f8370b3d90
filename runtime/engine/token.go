package engine

import (
	"context"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/predictor"
)

// Step runs one token at the next position and returns the vocabulary scores (vocab) of the token after it, valid until
// the next call. On an error or a cancelled ctx the sequence is left without the token.
func (e *Engine) Step(ctx context.Context, id int32) ([]float32, error) {
	if e.kv.Len >= e.kv.Capacity {
		return nil, format.Fitf("the sequence has reached the context of %d tokens", e.kv.Capacity)
	}
	if id < 0 || int(id) >= e.Config.Vocab {
		return nil, format.Inputf("token id %d is not in 0..%d", id, e.Config.Vocab-1)
	}
	start, io := time.Now(), e.reader.Stats()
	e.ioWait, e.predict = 0, 0
	if e.stream != nil {
		e.stream.wait = 0
	}
	if err := e.step(ctx, id); err != nil {
		e.drain()
		return nil, err
	}
	e.kv.Len++
	e.seq = append(e.seq, id)
	e.step1.Logits(e.logits, e.x)
	st := &e.stats
	st.Tokens++
	total := time.Since(start)
	wait := e.ioWait
	if e.stream != nil {
		wait += e.stream.wait
	}
	st.Total += total
	st.IOWait += wait
	st.Predict += e.predict
	st.Compute += total - wait - e.predict
	addIO(&st.StepIO, e.reader.Stats(), io)
	return e.logits, nil
}

// step is the token loop of design: layer 0, the selector, all reads of the token, the dense prefix while they run, and
// then each sparse layer as soon as its own rows are there. A stepwise selector looks at every site on the way, and a
// layer's reads begin where it names them.
func (e *Engine) step(ctx context.Context, id int32) error {
	pos, s := e.kv.Len, e.step1
	e.ids1[0] = id
	e.m.EmbedTokens(e.x, e.ids1)
	ahead, _ := e.selector.(predictor.Stepwise)
	for l, layer := range e.m.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		want := l == 0 && e.selector != nil && e.selector.NeedsLayer0()
		if want {
			copy(e.features.Embed, e.x)
		}
		if ahead != nil {
			e.look(ahead, 2*l)
		}
		att := s.Attention(layer, e.x, e.kv.Layers[l], pos)
		if ahead != nil {
			e.look(ahead, predictor.MLPSite(l))
		}
		if want {
			copy(e.features.AttnOut, att)
		}
		in := s.BeginMLP(layer, e.x)
		if want {
			copy(e.features.MLPIn, in)
		}
		switch {
		case e.dense[l].N == e.geometry.Neurons:
			gate, _ := s.MLPRows(e.dense[l].Mem, e.denseOff)
			s.EndMLP(e.x)
			if want {
				copy(e.features.Resid, e.x)
				e.observe(gate)
			}
		case e.sparse[l] != nil:
			sl := e.sparse[l]
			if err := e.finish(sl); err != nil {
				return err
			}
			e.stats.Needed += int64(len(sl.active))
			e.stats.Read += int64(len(sl.delta.In))
			if e.means != nil && len(sl.active) < e.geometry.Neurons {
				mean, sum := e.means.Layer(l)
				s.MLPRowsOf(sl.mem, sl.off, sl.active, mean, sum)
			} else {
				s.MLPRows(sl.mem, sl.off)
			}
			s.EndMLP(e.x)
		default:
			if rows := e.dense[l]; rows.N > 0 {
				s.MLPRows(rows.Mem, e.denseOff[:rows.N])
			}
			if err := e.streamStep(ctx, l); err != nil {
				return err
			}
			s.EndMLP(e.x)
		}
		if l == 0 && e.selector != nil && ahead == nil {
			if err := e.sparseRequests(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamStep runs the rows of a layer's MLP that are read.
func (e *Engine) streamStep(ctx context.Context, l int) error {
	if e.stream.limit >= 0 { // the first step after a prefill or a failure: read ahead without end
		e.stream.stop()
		e.stream.start(-1)
	}
	for range e.stream.perLayer() {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, _, rows, err := e.stream.next()
		if err != nil {
			return err
		}
		e.step1.MLPRows(rows.Mem, e.streamOff[:rows.N])
	}
	return nil
}
