package model

import (
	"math"

	"neuroprefetcher/kernels"
)

// Rows per unit of work of a matrix-vector product: small enough to balance two threads, large enough to be worth it.
const (
	gemvGrain = 16
	downGrain = 64 // columns, two cache lines of a down row; a multiple of every vector width
)

// Step is the working memory of the one-token forward pass. Nothing here allocates after NewStep: the closures that
// the pool runs are made once and read their arguments from the fields below. It is not safe for concurrent use.
type Step struct {
	m        *Model
	capacity int
	in       []float32 // (H) normed input
	qkv      []float32 // (Q + 2C)
	att      []float32 // (Q)
	out      []float32 // (H) output of the attention or of the MLP
	scores   []float32 // (heads, capacity)
	gate     []float32 // (M) gate_proj outputs of the rows in progress
	up       []float32 // (M)
	act      []float32 // (M) silu(gate)·up
	cos, sin []float32 // (head_dim/2)
	anglePos int

	// arguments of the running closure
	layer *Layer
	cache LayerKV
	from  int // first position that is seen
	pos   int
	mem   []uint16
	off   []int
	dst   []float32
	src   []float32
	mat   []uint16
	ids   []int32   // neurons of the rows, where means are subtracted
	mean  []float32 // (M)

	runQKV, runHeads, runGemv, runGateUp, runDown func(lo, hi int)
}

// StepBytes is what NewStep allocates.
func StepBytes(m *Model, capacity int) int64 {
	c := m.Config
	return int64(2*c.Hidden+2*m.QDim()+2*m.KVDim()+c.Heads*capacity+3*c.Intermediate) * 4
}

// NewStep allocates working memory for sequences of at most capacity tokens.
func (m *Model) NewStep(capacity int) *Step {
	c := m.Config
	f := func(n int) []float32 { return make([]float32, n) }
	s := &Step{m: m, capacity: capacity, anglePos: -1,
		in: f(c.Hidden), qkv: f(m.QDim() + 2*m.KVDim()), att: f(m.QDim()), out: f(c.Hidden),
		scores: f(c.Heads * capacity), gate: f(c.Intermediate), up: f(c.Intermediate), act: f(c.Intermediate),
		cos: f(c.HeadDim / 2), sin: f(c.HeadDim / 2)}
	s.runQKV, s.runHeads, s.runGemv, s.runGateUp, s.runDown = s.qkvRows, s.heads, s.gemvRows, s.gateUpRows, s.downColumns
	return s
}

// Attention adds one layer's attention to x (H), the residual stream of the token at position pos, and writes its key
// and value into cache. It returns the attention's output (H) before the addition, valid until the next call.
func (s *Step) Attention(l *Layer, x []float32, cache LayerKV, pos int) []float32 {
	m := s.m
	kernels.RMSNorm(s.in, x, l.AttnNorm, float32(m.Config.RMSEps))
	s.layer, s.cache, s.pos = l, cache, pos
	qd, kd := m.QDim(), m.KVDim()
	m.Pool.Run(qd+2*kd, gemvGrain, s.runQKV)
	q, k, v := s.qkv[:qd], s.qkv[qd:qd+kd], s.qkv[qd+kd:]
	if l.QB != nil {
		kernels.Add(q, l.QB)
		kernels.Add(k, l.KB)
		kernels.Add(v, l.VB)
	}
	if s.anglePos != pos {
		m.angles(s.cos, s.sin, pos)
		s.anglePos = pos
	}
	m.rotate(q, s.cos, s.sin)
	m.rotate(k, s.cos, s.sin)
	s.cache.put(pos*kd, k, v)
	s.from = 0
	if w := m.Config.SlidingWindow; w > 0 && pos+1 > w {
		s.from = pos + 1 - w
	}
	threads := m.Pool.Threads()
	m.Pool.Run(m.Config.Heads, (m.Config.Heads+threads-1)/threads, s.runHeads)
	s.gemv(s.out, s.att, l.O)
	kernels.Add(x, s.out)
	return s.out
}

// qkvRows computes outputs [lo, hi) of the three projections stacked as q, k, v.
func (s *Step) qkvRows(lo, hi int) {
	h := len(s.in)
	base := 0
	for _, part := range [...]struct {
		w []uint16
		n int
	}{{s.layer.Q, s.m.QDim()}, {s.layer.K, s.m.KVDim()}, {s.layer.V, s.m.KVDim()}} {
		a, b := max(lo-base, 0), min(hi-base, part.n)
		if a < b {
			kernels.GemvF16(s.qkv[base+a:base+b], s.in, part.w[a*h:b*h], h)
		}
		base += part.n
	}
}

// attentionTile is how many positions all heads of a thread go through before the next ones: heads that share keys and values
// then find them in a cache.
const attentionTile = 32

// heads computes softmax(q·Kᵀ/√d)·V of heads [lo, hi).
func (s *Step) heads(lo, hi int) {
	c := s.m.Config
	d, kd, n := c.HeadDim, s.m.KVDim(), s.pos+1-s.from
	scale := float32(1 / math.Sqrt(float64(d)))
	at := func(head int) int { return s.from*kd + head/(c.Heads/c.KVHeads)*d }
	q := func(head int) []float32 { return s.qkv[head*d : (head+1)*d] }
	p := func(head int) []float32 { return s.scores[head*s.capacity:][:n] }
	out := func(head int) []float32 { return s.att[head*d : (head+1)*d] }
	if s.cache.KF != nil {
		for head := lo; head < hi; head++ {
			s.cache.attend(out(head), q(head), p(head), at(head), kd, scale)
		}
		return
	}
	for t := 0; t < n; t += attentionTile {
		for head := lo; head < hi; head++ {
			kernels.ScoresF16(p(head)[t:min(t+attentionTile, n)], q(head), s.cache.K[at(head)+t*kd:], kd, scale)
		}
	}
	for head := lo; head < hi; head++ {
		kernels.Softmax(p(head))
	}
	clear(s.att[lo*d : hi*d])
	for t := 0; t < n; t += attentionTile {
		for head := lo; head < hi; head++ {
			kernels.AddWeightedF16(out(head), p(head)[t:min(t+attentionTile, n)], s.cache.V[at(head)+t*kd:], kd)
		}
	}
}

// gemv computes dst = src · matᵀ, mat (len(dst), len(src)) in float16, on all threads.
func (s *Step) gemv(dst, src []float32, mat []uint16) {
	s.dst, s.src, s.mat = dst, src, mat
	s.m.Pool.Run(len(dst), gemvGrain, s.runGemv)
}

func (s *Step) gemvRows(lo, hi int) {
	n := len(s.src)
	kernels.GemvF16(s.dst[lo:hi], s.src, s.mat[lo*n:hi*n], n)
}

// BeginMLP norms x (H) and starts a layer's MLP; it returns the normed input (H), valid until the next layer.
func (s *Step) BeginMLP(l *Layer, x []float32) []float32 {
	kernels.RMSNorm(s.in, x, l.MLPNorm, float32(s.m.Config.RMSEps))
	clear(s.out)
	return s.in
}

// MLPRows adds the neurons whose records begin at mem[off[i]], in the order given, which is ascending by neuron id over
// all calls of a layer. It returns their gate_proj and up_proj outputs, valid until the next call.
func (s *Step) MLPRows(mem []uint16, off []int) (gate, up []float32) {
	s.mean = nil
	return s.rows(mem, off)
}

// MLPRowsOf is MLPRows for all that is computed of a sparse layer, with what the others add on average: sum (H) is
// Σ_j mean_j·down_j over all neurons of the layer, mean (M) the part of each, which gives way to the activation where one
// is computed. ids are the neurons of the rows.
func (s *Step) MLPRowsOf(mem []uint16, off []int, ids []int32, mean, sum []float32) {
	s.ids, s.mean = ids, mean
	kernels.Add(s.out, sum)
	s.rows(mem, off)
}

func (s *Step) rows(mem []uint16, off []int) (gate, up []float32) {
	s.mem, s.off = mem, off
	n, p := len(off), s.m.Pool
	p.Run(n, gemvGrain, s.runGateUp)
	p.Run(len(s.out), s.downRange(), s.runDown)
	return s.gate[:n], s.up[:n]
}

func (s *Step) gateUpRows(lo, hi int) {
	kernels.GateUpRows(s.gate[lo:hi], s.up[lo:hi], s.in, s.mem, s.off[lo:hi])
	kernels.SiLUMul(s.act[lo:hi], s.gate[lo:hi], s.up[lo:hi])
	if s.mean != nil {
		for i, n := range s.ids[lo:hi] {
			s.act[lo+i] -= s.mean[n]
		}
	}
}

// downRange is the number of columns for each thread, in one piece: the parts of the down rows stay as long as they can
// be, because they are not next to each other in memory.
func (s *Step) downRange() int {
	t := s.m.Pool.Threads()
	each := (len(s.out) + t - 1) / t
	return max(downGrain, (each+downGrain/2-1)/(downGrain/2)*(downGrain/2))
}

func (s *Step) downColumns(lo, hi int) {
	kernels.DownRows(s.out, s.act[:len(s.off)], s.mem, s.off, len(s.out), lo, hi)
}

// EndMLP adds the MLP's output to x (H).
func (s *Step) EndMLP(x []float32) { kernels.Add(x, s.out) }

// Logits computes the vocabulary scores of x (H) into dst (vocab).
func (s *Step) Logits(dst, x []float32) {
	kernels.RMSNorm(s.in, x, s.m.Norm, float32(s.m.Config.RMSEps))
	s.gemv(dst, s.in, s.m.Head)
}
