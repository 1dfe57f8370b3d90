// Package capture runs the dense forward pass over calibration text and keeps, per token, what the later stages learn
// from: packed gate and up masks of every layer, the four feature vectors of layer 0, and per layer the sums of every
// neuron's importance |silu(g)·u|·‖down‖₂.
//
//   - capture.go: the stage; a part of the text is a unit that an interrupted run need not do again.
//   - part.go: one part, streamed to its files layer by layer, so that memory holds one layer's masks only.
//   - layer.go: what is taken from one layer.
//
// Mask bit n is set when float16(magnitude) ≥ threshold, with the magnitudes and thresholds of the threshold stage.
// calib.OpenCapture describes and reads the files.
//
// Invariants. The same checkpoint, text and parameters give the same bytes whatever the thread count and the budget.
//
// It may import format/..., kernels, runtime/predictor, prep/calib/... and prep/stage. Start at Run.
package capture
