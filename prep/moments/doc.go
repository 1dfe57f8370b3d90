// Package moments runs the dense forward pass over calibration text and sums second moments of the RMS-normalised
// residual stream, from which the regress stage solves the lookahead selector in closed form: gate and up outputs are
// linear in a layer's MLP input, so no moments wider than H are needed.
//
//   - moments.go: the stage; a part of the text is a unit that an interrupted run need not do again.
//   - part.go: one part, streamed to its file layer by layer.
//   - exact.go: the rounding that makes sums the same in any order.
//   - merge.go: the shards of a text, put together.
//
// Position 0 of every window is left out: its activations are those of an attention sink and would outweigh the rest.
// calib.OpenMoments describes and reads the files.
//
// Invariants. The same checkpoint, text and parameters give the same bytes whatever the thread count, the budget and the
// number of shards. Sums are float64 over blocks of at most 512 tokens in float32, rounded so that adding them is exact.
//
// It may import format/..., kernels, runtime/predictor, prep/calib/... and prep/stage. Start at Run.
package moments
