// Package vocab makes the score rows of the selectors `paper+` and `centroid`: what a neuron's energy is expected to be
// when a token has a certain centroid.
//
//   - run.go: the stage; a layer is a unit that an interrupted run need not do again.
//   - layer.go: what is taken from one layer's forward pass.
//   - kmeans.go: the joint vocabulary of a layer, clustered for covered importance.
//   - fit.go: from expectations to low-rank rows in 4-bit codes.
//   - files.go: from units to the stage's files.
//
// For `paper+` the expectations are E[silu(gate)² | gate id] and E[up² | up id], with the ids of the cluster stage. For
// `centroid` they are those of the importance |silu(gate)·up|·‖down‖₂ of a token, divided by its norm over the layer's
// neurons, given the id of one vocabulary per layer. Tokens are the capture stage's, some of its windows spread over all
// of them, so that its layer-0 features go with the ids; position 0 of every window is left out.
//
// Shapes are written (rows, columns): T tokens, H hidden, M neurons, K centroids, r rank.
//
// Invariants. The same files and seed give the same bytes whatever the thread count.
//
// It may import format/..., kernels, runtime/predictor, prep/calib/..., prep/lowrank and prep/stage. Start at Run.
package vocab
