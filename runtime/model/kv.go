package model

import "neuroprefetcher/format/checkpoint"

// LayerKV is one layer's key-value cache in float16: position t's keys are K[t*C:(t+1)*C].
type LayerKV struct {
	K, V []uint16 // (capacity, C)
}

// KV is the cache of one sequence over all layers.
type KV struct {
	Layers   []LayerKV
	Capacity int // positions
	Len      int // positions that hold a token; the engine moves it
}

// KVBytes is what NewKV allocates for the shape.
func KVBytes(c *checkpoint.Config, layers, capacity int) int64 {
	return int64(layers) * int64(capacity) * int64(c.KVHeads*c.HeadDim) * 2 * 2
}

// NewKV returns an empty cache. The calibration pass, which goes layer by layer, needs just one layer of it.
func NewKV(c *checkpoint.Config, layers, capacity int) *KV {
	kv := &KV{Layers: make([]LayerKV, layers), Capacity: capacity}
	dim := c.KVHeads * c.HeadDim
	for i := range kv.Layers {
		kv.Layers[i] = LayerKV{K: make([]uint16, capacity*dim), V: make([]uint16, capacity*dim)}
	}
	return kv
}
