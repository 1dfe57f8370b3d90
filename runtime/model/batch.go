package model

import (
	"math"

	"neuroprefetcher/kernels"
)

// batchWidth is how many neurons a batch computes at a time when it is given that many: wide enough that packing the
// tokens' side of a product once per call costs little.
const batchWidth = 4 * MLPChunk

// width is the neurons computed at a time for the model's shape.
func (m *Model) width() int { return min(batchWidth, m.Config.Intermediate) }

// QueryBlock is how many queries of one head share an attention product.
const QueryBlock = 64

// Batch is the working memory of a forward pass over up to MaxT tokens. It is not safe for concurrent use.
type Batch struct {
	m        *Model
	MaxT     int
	in       []float32 // (T, H) normed input of the attention or of the MLP
	q        []float32 // (T, Q)
	k, v     []float32 // (T, C)
	att      []float32 // (T, Q)
	out      []float32 // (T, H) output of the attention or of the MLP
	gate, up []float32 // (T, width)
	cos, sin []float32 // (T, head_dim/2)
	anglePos int       // position that cos and sin begin at, -1 when unset
	angleT   int
	t        int // tokens of the MLP in progress
	scores   scratch
}

// BatchBytes is what NewBatch allocates.
func BatchBytes(m *Model, maxT int) int64 {
	return int64(maxT) * int64(2*m.Config.Hidden+2*m.QDim()+2*m.KVDim()+2*m.width()+m.Config.HeadDim) * 4
}

// NewBatch allocates working memory for batches of at most maxT tokens.
func (m *Model) NewBatch(maxT int) *Batch {
	h, chunk := m.Config.Hidden, m.width()
	f := func(n int) []float32 { return make([]float32, maxT*n) }
	return &Batch{m: m, MaxT: maxT, anglePos: -1,
		in: f(h), q: f(m.QDim()), k: f(m.KVDim()), v: f(m.KVDim()), att: f(m.QDim()), out: f(h),
		gate: f(chunk), up: f(chunk), cos: f(m.Config.HeadDim / 2), sin: f(m.Config.HeadDim / 2)}
}

// rows runs f over the tokens of a batch on all threads.
func (b *Batch) rows(t int, f func(i int)) {
	b.m.Pool.Run(t, 8, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i)
		}
	})
}

// norm writes RMSNorm of every row of x into b.in.
func (b *Batch) norm(x, weight []float32, t int) {
	h, eps := b.m.Config.Hidden, float32(b.m.Config.RMSEps)
	b.rows(t, func(i int) { kernels.RMSNorm(b.in[i*h:(i+1)*h], x[i*h:(i+1)*h], weight, eps) })
}

// project computes dst (T, n) = src (T, k) · Wᵀ + bias, W (n, k) in float16.
func (b *Batch) project(dst, src []float32, w []uint16, bias []float32, t, n, k int) {
	kernels.Gemm(b.m.Pool, kernels.F32Matrix(dst, t, n, n), kernels.F32Matrix(src, t, k, k), kernels.F16Matrix(w, n, k, k).T(), false)
	if bias != nil {
		b.rows(t, func(i int) { kernels.Add(dst[i*n:(i+1)*n], bias) })
	}
}

// Attention adds one layer's attention to x (T, H), the residual stream of T tokens at positions pos0…, and appends
// their keys and values to cache, which must hold all positions before pos0. It returns the attention's output (T, H)
// before the addition, valid until the next call.
func (b *Batch) Attention(l *Layer, x []float32, t int, cache LayerKV, pos0 int) []float32 {
	m := b.m
	h, qd, kd := m.Config.Hidden, m.QDim(), m.KVDim()
	b.norm(x[:t*h], l.AttnNorm, t)
	in := b.in[:t*h]
	b.project(b.q[:t*qd], in, l.Q, l.QB, t, qd, h)
	b.project(b.k[:t*kd], in, l.K, l.KB, t, kd, h)
	b.project(b.v[:t*kd], in, l.V, l.VB, t, kd, h)
	b.setAngles(pos0, t)
	half := m.Config.HeadDim / 2
	b.rows(t, func(i int) {
		cos, sin := b.cos[i*half:(i+1)*half], b.sin[i*half:(i+1)*half]
		m.rotate(b.q[i*qd:(i+1)*qd], cos, sin)
		m.rotate(b.k[i*kd:(i+1)*kd], cos, sin)
		cache.put((pos0+i)*kd, b.k[i*kd:(i+1)*kd], b.v[i*kd:(i+1)*kd])
	})
	blocks := (t + QueryBlock - 1) / QueryBlock
	m.Pool.Run(m.Config.Heads*blocks, 1, func(lo, hi int) {
		s := b.scores.get((pos0+t)*QueryBlock, cache.positions(kd)*QueryBlock)
		for i := lo; i < hi; i++ {
			// Late blocks look at the most keys: begin with them so that the threads end together.
			head, blk := i%m.Config.Heads, blocks-1-i/m.Config.Heads
			first := blk * QueryBlock
			b.attendBlock(s, cache, head, pos0, first, min(first+QueryBlock, t))
		}
		b.scores.put(s)
	})
	out := b.out[:t*h]
	b.project(out, b.att[:t*qd], l.O, nil, t, h, qd)
	b.rows(t, func(i int) { kernels.Add(x[i*h:(i+1)*h], out[i*h:(i+1)*h]) })
	return out
}

// attendBlock computes softmax(q·Kᵀ/√d)·V of one head for the queries [lo, hi) of the batch. Keys that a query must
// not see get probability zero, which leaves the sum over the others bit for bit as it is.
func (b *Batch) attendBlock(s []float32, cache LayerKV, head, pos0, lo, hi int) {
	m := b.m
	d, qd, kd := m.Config.HeadDim, m.QDim(), m.KVDim()
	kvHead := head / (m.Config.Heads / m.Config.KVHeads)
	n, keys := hi-lo, pos0+hi
	scores := kernels.F32Matrix(s, n, keys, keys)
	q := kernels.F32Matrix(b.q[lo*qd+head*d:], n, d, qd)
	kernels.Gemm(nil, scores, q, cache.keys(kvHead*d, keys, d, kd).T(), false)
	scale := float32(1 / math.Sqrt(float64(d)))
	for i := range n {
		row, pos := s[i*keys:(i+1)*keys], pos0+lo+i
		from := 0
		if w := m.Config.SlidingWindow; w > 0 && pos+1 > w {
			from = pos + 1 - w
		}
		seen := row[from : pos+1]
		for j := range seen {
			seen[j] *= scale
		}
		kernels.Softmax(seen)
		clear(row[:from])
		clear(row[pos+1:])
	}
	kernels.Gemm(nil, kernels.F32Matrix(b.att[lo*qd+head*d:], n, d, qd), scores, cache.values(kvHead*d, keys, d, kd), false)
}

func (b *Batch) setAngles(pos0, t int) {
	if b.anglePos == pos0 && b.angleT >= t {
		return
	}
	half := b.m.Config.HeadDim / 2
	for i := range t {
		b.m.angles(b.cos[i*half:(i+1)*half], b.sin[i*half:(i+1)*half], pos0+i)
	}
	b.anglePos, b.angleT = pos0, t
}

// MLPTap sees one chunk of a layer's MLP: neurons [lo, hi), with gate and up the outputs of gate_proj and up_proj
// before the activation, (T, hi-lo) row-major. It runs before they are overwritten and must not keep them.
type MLPTap func(lo, hi int, gate, up []float32)

// BeginMLP norms x (T, H) and starts a layer's MLP; it returns the normed input (T, H), valid until the next layer.
func (b *Batch) BeginMLP(l *Layer, x []float32, t int) []float32 {
	h := b.m.Config.Hidden
	b.norm(x[:t*h], l.MLPNorm, t)
	b.t = t
	clear(b.out[:t*h])
	return b.in[:t*h]
}

// MLPChunk adds the neurons of rows, whose first is neuron first of the layer. Chunks come in order; each but the last
// has a multiple of MLPChunk neurons. tap may be nil.
func (b *Batch) MLPChunk(rows Rows, first int, tap MLPTap) {
	h, t, p := b.m.Config.Hidden, b.t, b.m.Pool
	for lo := 0; lo < rows.N; lo += batchWidth {
		n := min(batchWidth, rows.N-lo)
		part := rows.Slice(lo, lo+n)
		gate, up := b.gate[:t*n], b.up[:t*n]
		in := kernels.F32Matrix(b.in, t, h, h)
		kernels.Gemm(p, kernels.F32Matrix(gate, t, n, n), in, kernels.F16Matrix(part.Mem, n, h, part.Stride).T(), false)
		kernels.Gemm(p, kernels.F32Matrix(up, t, n, n), in, kernels.F16Matrix(part.Mem[h:], n, h, part.Stride).T(), false)
		if tap != nil {
			tap(first+lo, first+lo+n, gate, up)
		}
		b.rows(t, func(i int) { kernels.SiLUMul(gate[i*n:(i+1)*n], gate[i*n:(i+1)*n], up[i*n:(i+1)*n]) })
		kernels.Gemm(p, kernels.F32Matrix(b.out, t, h, h), kernels.F32Matrix(gate, t, n, n), kernels.F16Matrix(part.Mem[2*h:], n, h, part.Stride), true)
	}
}

// EndMLP adds the MLP's output to x (T, H).
func (b *Batch) EndMLP(x []float32) {
	h := b.m.Config.Hidden
	b.rows(b.t, func(i int) { kernels.Add(x[i*h:(i+1)*h], b.out[i*h:(i+1)*h]) })
}

// MLP is the whole MLP of a layer whose records are all in memory.
func (b *Batch) MLP(l *Layer, rows Rows, x []float32, t int, tap MLPTap) {
	b.BeginMLP(l, x, t)
	b.MLPChunk(rows, 0, tap)
	b.EndMLP(x)
}

// Logits computes the vocabulary scores of the rows [lo, hi) of x (T, H) into dst (hi-lo, vocab).
func (b *Batch) Logits(dst, x []float32, lo, hi int) {
	h, vocab, t := b.m.Config.Hidden, b.m.Config.Vocab, hi-lo
	b.norm(x[lo*h:hi*h], b.m.Norm, t)
	b.project(dst[:t*vocab], b.in[:t*h], b.m.Head, nil, t, vocab, h)
}

// LogProbs writes the log-probability of targets[i] after token i of x (t, H) into dst (t), going through the
// vocabulary in blocks so that no (t, vocab) matrix is needed.
func (b *Batch) LogProbs(dst []float64, x []float32, targets []int32) {
	b.TopLogProbs(dst, nil, 0, x, targets)
}

// logSumExp is log Σ exp x, with the sum and the logarithm in float64: exact where all scores are equal. x becomes the
// softmax, whose terms are those of the sum but for a factor.
func logSumExp(x []float32) float64 {
	at := kernels.MaxIndex(x)
	top := float64(x[at])
	kernels.Softmax(x)
	sum := 0.0
	for _, p := range x {
		sum += float64(p)
	}
	return top + math.Log(sum/float64(x[at]))
}

// logAddExp is log(eᵃ + eᵇ).
func logAddExp(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}
