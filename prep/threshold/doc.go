// Package threshold counts the magnitudes of every layer's gate and up activations by their float16 bit pattern.
//
// gate magnitude is |silu(gate_proj x)|, up magnitude |up_proj x|. The threshold for a density is the smallest float16
// value t with count(v ≥ t) ≤ density·total (calib.Threshold); it needs only the counters, so another density needs no
// second pass. The counters are integers and every token's activations are independent of the batch it runs in, so they
// do not depend on how the text is split, grouped or threaded.
//
// It may import format/..., kernels, prep/calib/... and prep/stage. Start at Run.
package threshold
