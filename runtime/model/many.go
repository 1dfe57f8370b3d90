package model

import (
	"math"

	"neuroprefetcher/kernels"
)

// Many is the forward pass of one token each of up to n sequences that do not see each other: the projections are matrix
// products over all of them, the attention is each one's own, as in Step. The MLP and the logits are its Batch's. A
// sequence's result does not depend on which others run beside it, nor on the thread count. It is not safe for
// concurrent use.
type Many struct {
	*Batch
	probs scratch
}

// NewMany allocates working memory for at most n sequences.
func (m *Model) NewMany(n int) *Many { return &Many{Batch: m.NewBatch(n)} }

// Attention adds one layer's attention to x (n, H), the residual streams of n sequences' tokens, and writes their keys
// and values to the sequences' caches of this layer: token i is at position pos[i] of caches[i].
func (b *Many) Attention(l *Layer, x []float32, caches []LayerKV, pos []int) {
	m, n := b.m, len(pos)
	h, qd, kd, half := m.Config.Hidden, m.QDim(), m.KVDim(), m.Config.HeadDim/2
	b.norm(x[:n*h], l.AttnNorm, n)
	in := b.in[:n*h]
	b.project(b.q[:n*qd], in, l.Q, l.QB, n, qd, h)
	b.project(b.k[:n*kd], in, l.K, l.KB, n, kd, h)
	b.project(b.v[:n*kd], in, l.V, l.VB, n, kd, h)
	m.Pool.Run(n, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			cos, sin := b.cos[i*half:(i+1)*half], b.sin[i*half:(i+1)*half]
			m.angles(cos, sin, pos[i])
			m.rotate(b.q[i*qd:(i+1)*qd], cos, sin)
			m.rotate(b.k[i*kd:(i+1)*kd], cos, sin)
			caches[i].put(pos[i]*kd, b.k[i*kd:(i+1)*kd], b.v[i*kd:(i+1)*kd])
			b.attend(i, &caches[i], pos[i])
		}
	})
	b.anglePos = -1 // the angles are no longer those of consecutive positions
	out := b.out[:n*h]
	b.project(out, b.att[:n*qd], l.O, nil, n, h, qd)
	b.rows(n, func(i int) { kernels.Add(x[i*h:(i+1)*h], out[i*h:(i+1)*h]) })
}

// attend computes softmax(q·Kᵀ/√d)·V of all heads of sequence i, whose token is at position pos.
func (b *Many) attend(i int, cache *LayerKV, pos int) {
	c := b.m.Config
	d, qd, kd := c.HeadDim, b.m.QDim(), b.m.KVDim()
	from := 0
	if w := c.SlidingWindow; w > 0 && pos+1 > w {
		from = pos + 1 - w
	}
	scale := float32(1 / math.Sqrt(float64(d)))
	p := b.probs.get(pos+1-from, cache.positions(kd))
	for head := range c.Heads {
		at := from*kd + head/(c.Heads/c.KVHeads)*d
		cache.attend(b.att[i*qd+head*d:i*qd+(head+1)*d], b.q[i*qd+head*d:i*qd+(head+1)*d], p, at, kd, scale)
	}
	b.probs.put(p)
}
