package model

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

// MLPChunk is the neurons at whose multiples a layer may be cut. It is the block length in which Gemm sums, so a layer
// that arrives in such pieces gives the same bits as a whole one; and small, because stream buffers hold a piece each.
const MLPChunk = kernels.GemmKC

// Layer holds what stays in memory of one decoder layer whatever the mode: its attention and its norms.
type Layer struct {
	AttnNorm, MLPNorm []float32 // (H)
	Q                 []uint16  // (Q, H) float16
	K, V              []uint16  // (C, H) float16
	O                 []uint16  // (H, Q) float16
	QB, KB, VB        []float32 // (Q), (C), (C), or nil
}

// Rows is a view of neuron records in memory: record i begins at Mem[i*Stride] with its gate row, up row and
// transposed down column, H elements each; what follows up to Stride is not read.
type Rows struct {
	Mem    []uint16
	Stride int // elements from one record to the next
	N      int // records
}

// Slice returns records [lo, hi).
func (r Rows) Slice(lo, hi int) Rows {
	return Rows{Mem: r.Mem[lo*r.Stride:], Stride: r.Stride, N: hi - lo}
}

// Model is everything but the MLPs. Its slices are owned by whoever loaded them.
type Model struct {
	Config *checkpoint.Config
	Pool   *kernels.Pool
	Embed  []uint16  // (vocab, H)
	Head   []uint16  // (vocab, H); the same slice as Embed when tied
	Norm   []float32 // (H)
	Layers []*Layer

	invFreq []float64 // (head_dim/2)
}

// New returns a model without weights: Load fills them, or the caller sets layers as it streams them.
func New(c *checkpoint.Config, pool *kernels.Pool) *Model {
	return &Model{Config: c, Pool: pool, Layers: make([]*Layer, c.Layers), invFreq: c.InvFreq()}
}

// QDim is heads·head_dim.
func (m *Model) QDim() int { return m.Config.Heads * m.Config.HeadDim }

// KVDim is kv_heads·head_dim.
func (m *Model) KVDim() int { return m.Config.KVHeads * m.Config.HeadDim }

// EmbedTokens writes the embedding rows of ids into x (len(ids), H).
func (m *Model) EmbedTokens(x []float32, ids []int32) {
	h := m.Config.Hidden
	for i, id := range ids {
		kernels.F16ToF32(x[i*h:(i+1)*h], m.Embed[int(id)*h:(int(id)+1)*h])
	}
}
