// Package regress solves the lookahead selector: for every layer, low-rank maps from the residual stream at an earlier
// site to the gate and up outputs, in closed form from the moments stage's sums.
//
//   - run.go: the stage; a layer is a unit that an interrupted run need not do again.
//   - size.go: which rank the factors get.
//   - solve.go: reduced-rank ridge regression in float64.
//
// Shapes are written (rows, columns): H hidden, M neurons, r rank. x is the RMS-normalised stream at the source, t that
// before the layer's MLP, so that the layer's outputs are y = W·diag(norm)·t; x' is x centred and divided by its
// standard deviations. With L·Lᵀ = E[x'·x'ᵀ] + ridge, the weighted least-squares map of rank r is Out·In with
// In = Uᵀ·L⁻¹, U the leading eigenvectors of L⁻¹·E[x'tᵀ]·(Wᵀ·D²·W)·E[tx'ᵀ]·L⁻ᵀ. D is ‖down‖ × the root mean square of the
// partner factor, which is what an error of the output does to the neuron's contribution. In is rounded to 4 bits, Out is
// solved again for the rounded In and rounded too, and the residual variances are those of what was rounded.
//
// Invariants. The same moments and parameters give the same bytes whatever the thread count.
//
// It may import format/..., kernels, runtime/model, runtime/predictor, prep/calib, prep/lowrank and prep/stage. Start at Run.
package regress
