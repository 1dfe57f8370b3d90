// Package lowrank has what the stages share that fit low-rank maps: leading eigenvectors, and rounding to the 4-bit codes
// that runtime/predictor multiplies with.
//
//   - eigen.go: eigenvectors in float64, from a block Krylov space where the whole problem would take too long.
//   - quantise.go: 4-bit codes with a scale for every group of 32.
//
// Invariants. The same input gives the same bits, whatever the thread count.
//
// It may import format/... and kernels. Start at Leading and Encode.
package lowrank
