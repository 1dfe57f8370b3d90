// Package predictor names neurons: the paper's network and centroid tables, and the selectors built on them.
//
//   - network.go: the network's definition, tensor names and limits; the training stage follows it.
//   - predict.go: inference on float16 weights, one token at a time.
//   - centroids.go: the bundle's centroids member.
//   - selector.go: the seam Selector; open.go finds a bundle's; paper.go, static.go, lookahead.go and mixture.go are the
//     selectors behind it; vocabulary.go is for giving them the right ids. means.go is what stands in for neurons that a
//     selector leaves out.
//   - sites.go: places of the residual stream, and selectors that look at it on the way.
//
// Shapes are written (rows, columns), row-major: H hidden, M neurons of a layer, W = ⌈M/64⌉ words of a mask, T the
// network's width, K a table's centroids. Masks are little-endian words: neuron n is bit n%64 of word n/64; bits ≥ M
// are zero.
//
// Invariants. Nothing is allocated per token. Results do not depend on the thread count. What is read from disk is
// checked against the model's shape before it is used.
//
// It may import format/... and kernels. Start at Selector.
package predictor
