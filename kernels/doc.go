// Package kernels is the arithmetic: dot products, row updates, conversions,
// normalisation, exponentials, bit sets, and (gemm*.go, pool*.go) the batched
// matrix product with the worker pool that feeds it.
//
// It imports nothing of ours. Matrices are float16 bit patterns ([]uint16),
// or 4-bit codes (q4.go); activations are float32.
//
// Layout, per subject (convert, dot, q4, axpy, attention, norm, exp, bits, magnitude):
//
//	x.go          exported functions: length checks, blocks and leftovers
//	x_generic.go  the definition in plain Go, readable like the formula
//	x_amd64.go/.s AVX2 and AVX-512: same result, faster
//	x_arm64.go/.s NEON
//	noasm.go      the choice for every other machine and for the tag purego
//
// A few subjects need no assembly of their own and are one file. Rows that are
// taken eight at a time wait for memory, not for arithmetic: they have an AVX2
// version, which the level avx512 uses too, and on arm64 are two times four.
// prefetch.go says what the row kernels ask memory for ahead of time.
//
// # Levels
//
// The level is chosen once, when the program starts, from what the processor
// has: generic < avx2 < avx512, or generic < neon. The environment variable
// NP_CPU may name a lower one, never a higher one. Tests run every level that
// the machine has through SetLevel.
//
// # Invariants
//
//   - Work is split over outputs, never over a reduction. A row of GemvF16 or
//     GateUpRows does not depend on which other rows are in the call.
//   - AxpyF16, AxpyF32, DownRows and WeightedSumF16 do one fused multiply-add
//     per element and term, terms in ascending order. Any split of the range
//     gives the same bits, and so does every level on every machine.
//   - Conversions, bit kernels and histograms are exact: all levels agree. So
//     does GemvQ4I8, whose comment fixes the order of its sums.
//   - Dot products and exponentials differ between levels in the last bits;
//     their tests state the bound. Within one level they are deterministic.
//   - Nothing here allocates. Wrong lengths are the caller's bug and panic.
//
// Start at dispatch.go, then dot.go.
package kernels
