package model

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

// LayerKV is one layer's key-value cache. Position t's keys are K[t*C:(t+1)*C] in float16, or KF in float32.
type LayerKV struct {
	K, V   []uint16  // (capacity, C), or nil
	KF, VF []float32 // (capacity, C), or nil
}

// KV is the cache of one sequence over all layers.
type KV struct {
	Layers   []LayerKV
	Capacity int // positions
	Len      int // positions that hold a token; the engine moves it
}

// KVBytes is what NewKV allocates for the shape.
func KVBytes(c *checkpoint.Config, layers, capacity int, full bool) int64 {
	width := int64(2)
	if full {
		width = 4
	}
	return 2 * width * int64(layers) * int64(capacity) * int64(c.KVHeads*c.HeadDim)
}

// NewKV returns an empty cache in float16, or in float32 when full is true. The calibration pass, which goes layer by
// layer, needs just one layer of it.
func NewKV(c *checkpoint.Config, layers, capacity int, full bool) *KV {
	kv := &KV{Layers: make([]LayerKV, layers), Capacity: capacity}
	n := capacity * c.KVHeads * c.HeadDim
	for i := range kv.Layers {
		if full {
			kv.Layers[i] = LayerKV{KF: make([]float32, n), VF: make([]float32, n)}
		} else {
			kv.Layers[i] = LayerKV{K: make([]uint16, n), V: make([]uint16, n)}
		}
	}
	return kv
}

// NewKVIn is NewKV in float16 on memory of KVBytes, zeroed, that the caller keeps.
func NewKVIn(c *checkpoint.Config, layers, capacity int, mem []uint16) *KV {
	kv := &KV{Layers: make([]LayerKV, layers), Capacity: capacity}
	n := capacity * c.KVHeads * c.HeadDim
	for i := range kv.Layers {
		kv.Layers[i] = LayerKV{K: mem[2*i*n : (2*i+1)*n : (2*i+1)*n], V: mem[(2*i+1)*n : (2*i+2)*n : (2*i+2)*n]}
	}
	return kv
}

// positions is how many tokens of kd elements the cache can hold.
func (l *LayerKV) positions(kd int) int { return max(len(l.K), len(l.KF)) / kd }

// put stores keys and values from element at on.
func (l *LayerKV) put(at int, k, v []float32) {
	if l.KF != nil {
		copy(l.KF[at:], k)
		copy(l.VF[at:], v)
		return
	}
	kernels.F32ToF16(l.K[at:at+len(k)], k)
	kernels.F32ToF16(l.V[at:at+len(v)], v)
}

// keys and values are (rows, cols) views that begin at element at, one position every stride elements.
func (l *LayerKV) keys(at, rows, cols, stride int) kernels.Matrix {
	if l.KF != nil {
		return kernels.F32Matrix(l.KF[at:], rows, cols, stride)
	}
	return kernels.F16Matrix(l.K[at:], rows, cols, stride)
}

func (l *LayerKV) values(at, rows, cols, stride int) kernels.Matrix {
	if l.KF != nil {
		return kernels.F32Matrix(l.VF[at:], rows, cols, stride)
	}
	return kernels.F16Matrix(l.V[at:], rows, cols, stride)
}

// attend computes out (head_dim) = softmax(scale·q·Kᵀ)·V over len(p) positions from element at on; p is working memory.
func (l *LayerKV) attend(out, q, p []float32, at, stride int, scale float32) {
	if l.KF == nil {
		kernels.ScoresF16(p, q, l.K[at:], stride, scale)
		kernels.Softmax(p)
		kernels.WeightedSumF16(out, p, l.V[at:], stride)
		return
	}
	for t := range p {
		p[t] = scale * kernels.DotF32(q, l.KF[at+t*stride:][:len(q)])
	}
	kernels.Softmax(p)
	clear(out)
	for t, w := range p {
		kernels.AxpyF32(out, w, l.VF[at+t*stride:][:len(out)])
	}
}
