package engine

import (
	"context"
	"math"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// seedTokens is how many of a prompt's last tokens choose what is resident when generation starts.
const seedTokens = 16

// promptNeurons is how much of a layer in memory a prompt runs through between two looks at the context: a second, with
// many tokens on few threads. A multiple of model.MLPChunk.
const promptNeurons = 16 * model.MLPChunk

// Prefill runs a prompt through whole layers, exactly, in micro-batches, and returns the vocabulary scores (vocab)
// after its last token. In sparse mode the prompt's own activations choose which rows are resident afterwards.
func (e *Engine) Prefill(ctx context.Context, ids []int32) ([]float32, error) {
	err := e.prefill(ctx, ids, nil)
	if err != nil {
		return nil, err
	}
	return e.logits, nil
}

// Score runs ids through whole layers like Prefill and writes the log-probability of ids[i+1] after ids[:i+1] into
// dst[i], len(ids)-1 values.
func (e *Engine) Score(ctx context.Context, ids []int32, dst []float64) error {
	return e.prefill(ctx, ids, func(from, t int, x []float32) {
		if t = min(t, len(ids)-1-from); t > 0 {
			e.batch.LogProbs(dst[from:from+t], x, ids[from+1:from+1+t])
		}
	})
}

// prefill runs ids and calls visit, if any, with the residual stream (t, H) behind the last layer of each micro-batch.
func (e *Engine) prefill(ctx context.Context, ids []int32, visit func(from, t int, x []float32)) error {
	if len(ids) == 0 {
		return format.Inputf("the prompt is empty")
	}
	if e.kv.Len+len(ids) > e.kv.Capacity {
		return format.Hint(format.Inputf("the prompt has %d tokens, the context holds %d", e.kv.Len+len(ids), e.kv.Capacity), "raise --context or shorten the prompt")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.Config.Vocab {
			return format.Inputf("prompt token %d has id %d, not in 0..%d", i, id, e.Config.Vocab-1)
		}
	}
	start, io := time.Now(), e.reader.Stats()
	begin := e.kv.Len
	err := e.prefillBatches(ctx, ids, visit)
	if err != nil {
		e.drain()
		e.rewind(begin)
		return err
	}
	e.stats.Prompt += len(ids)
	e.stats.PrefillTime += time.Since(start)
	addIO(&e.stats.PrefillIO, e.reader.Stats(), io)
	return nil
}

func (e *Engine) prefillBatches(ctx context.Context, ids []int32, visit func(from, t int, x []float32)) error {
	// Of equal size: the last one, whose activations choose what is resident, is not a rest of a few tokens.
	passes, h := (len(ids)+e.Plan.Microbatch-1)/e.Plan.Microbatch, e.Config.Hidden
	if e.stream != nil {
		e.stream.stop()
		e.stream.start(passes)
	}
	for i := range passes {
		from := i * len(ids) / passes
		part := ids[from : (i+1)*len(ids)/passes]
		t, last := len(part), i == passes-1
		x := e.xs[:t*h]
		e.m.EmbedTokens(x, part)
		for l, layer := range e.m.Layers {
			if err := ctx.Err(); err != nil {
				return err
			}
			e.batch.Attention(layer, x, t, e.kv.Layers[l], e.kv.Len)
			if err := e.batchMLP(ctx, l, layer, x, t, last); err != nil {
				return err
			}
		}
		e.kv.Len += t
		e.seq = append(e.seq, part...)
		if visit != nil {
			visit(from, t, x)
		}
		if last {
			e.batch.Logits(e.logits, x, t-1, t)
		}
	}
	for _, s := range e.sparse {
		if s != nil && s.sent {
			if err := e.finish(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchMLP runs one layer's MLP for a micro-batch: from memory, or chunk by chunk as the layer arrives.
func (e *Engine) batchMLP(ctx context.Context, l int, layer *model.Layer, x []float32, t int, last bool) error {
	e.batch.BeginMLP(layer, x, t)
	if rows := e.dense[l]; rows.N > 0 {
		for lo := 0; lo < rows.N; lo += promptNeurons {
			if err := ctx.Err(); err != nil {
				return err
			}
			e.batch.MLPChunk(rows.Slice(lo, min(lo+promptNeurons, rows.N)), lo, nil)
		}
		if rows.N == e.geometry.Neurons {
			e.batch.EndMLP(x)
			return nil
		}
	}
	s := e.sparse[l]
	seed := s != nil && last
	for range e.stream.perLayer() {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, first, rows, err := e.stream.next()
		if err != nil {
			return err
		}
		var tap model.MLPTap
		if seed {
			tap = func(lo, hi int, gate, up []float32) {
				e.importance(e.scores[lo:hi], rows.Slice(lo-first, hi-first), gate, up, t)
			}
		}
		e.batch.MLPChunk(rows, first, tap)
	}
	e.batch.EndMLP(x)
	if seed {
		e.request(s, e.scores)
	}
	return nil
}

// importance writes Σ |silu(g)·u|·‖down‖ over the last seedTokens of t tokens for the neurons of rows into dst.
func (e *Engine) importance(dst []float32, rows model.Rows, gate, up []float32, t int) {
	n, h := rows.N, e.Config.Hidden
	e.m.Pool.Run(n, 64, func(lo, hi int) {
		down := make([]float32, h)
		for i := lo; i < hi; i++ {
			kernels.F16ToF32(down, rows.Mem[i*rows.Stride+2*h:][:h])
			sum := 0.0
			for tok := max(0, t-seedTokens); tok < t; tok++ {
				g := float64(gate[tok*n+i])
				sum += math.Abs(g / (1 + math.Exp(-g)) * float64(up[tok*n+i]))
			}
			dst[i] = float32(sum * math.Sqrt(float64(kernels.DotF32(down, down))))
		}
	})
}
