// Package engine turns a bundle into tokens inside a memory budget.
//
// A mode decides where the records of each layer's MLP are:
//
//	resident   all in memory
//	stream     as many of the first rows of every layer as fit in memory (or whole layers, where --dense-layers says how
//	           many), the others read for every pass through a few small buffers
//	sparse     the dense prefix in memory, K_max slots for each later layer; per token only the delta is read
//
// Start at Open (open.go), which plans the memory (plan.go), loads what stays, compares it with its checksums
// (members.go, check.go) and returns an Engine. Prefill
// (prefill.go) runs a prompt through whole layers; Step (token.go) runs one token; Generate (generate.go) strings them
// together with a sampler and a tokenizer. stream.go reads layers, or the rest of them, ahead of their use, sparse.go holds the slot
// maps and turns a selector's scores into reads: a token-level selector's after layer 0, a stepwise one's where it names
// a layer.
//
// Invariants: resident and stream give the same bits; sparse with K_max = M gives the same bits as both; a slot map
// says what is in the slots even after a failed read; nothing allocates per token.
//
// It may import format/..., kernels and the other packages of runtime. One Engine serves one sequence at a time.
package engine
