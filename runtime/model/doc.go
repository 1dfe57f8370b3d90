// Package model is the transformer: weights of the resident part, the key-value cache, and the forward pass in three
// forms that share every definition.
//
//   - batch.go: T tokens at once through blocked matrix products; prefill, evaluation and calibration run it.
//   - many.go: one token each of many sequences; text that the model writes itself for calibration runs it.
//   - step.go: one token through matrix-vector products and the row kernels; decoding runs it.
//
// Weights are float16, activations float32, the cache float16. Shapes are written (rows, columns), row-major:
// T tokens, H hidden, M intermediate, Q = heads·head_dim, C = kv_heads·head_dim.
//
// Invariants. A token's result in a batch does not depend on how many tokens the batch has, nor on the thread count.
// The MLP sums over neuron ids ascending, in chunks of MLPChunk neurons, whether the records are all in memory or
// arrive one chunk after the other; so resident and streamed layers give the same bits.
//
// It may import format/... and kernels. Start at Model, then Batch.Attention and Batch.MLPChunk.
package model
