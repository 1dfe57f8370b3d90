// Package repack turns a checkpoint into what a bundle stores of it: rows.np with one record per neuron, and
// resident.safetensors with everything else.
//
// Weights become float16 by rounding to nearest, ties to even. What float16 cannot hold is refused, naming the
// tensor; what it holds less exactly (below 2^-14) is counted. One layer is in memory at a time.
//
// A unit of resumption is one layer's whole block of records, trusted only after its bytes were read back and
// matched the checksum noted for it.
//
// Imports: format, kernels, prep/stage. Start at Run.
package repack
