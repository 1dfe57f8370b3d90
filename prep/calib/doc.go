// Package calib holds what the calibration stages share: windows of text and the files they hand to each other.
//
//   - text/: calibration text, tokenised whole, and where a token came from; windows.go cuts it.
//   - counts.go: counters of magnitudes by float16 bit pattern, and the thresholds that follow from them.
//   - parts.go: the capture stage's files: masks, layer-0 features, importance sums.
//   - moments.go: the moments stage's file: second moments of the residual stream.
//   - seal.go: checksums by which an interrupted stage trusts its finished units.
//   - tables.go: the cluster stage's files: ids, centroids, member frequencies.
//
// Shapes are written (rows, columns): T tokens, H hidden, M neurons, W = ⌈M/64⌉ words of a mask, K centroids.
// It may import format/..., kernels and runtime/predictor (for names that bundles share). Start at OpenCapture.
package calib
