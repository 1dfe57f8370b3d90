// Package cluster groups the captured masks of every layer and projection into K centroids, and later cuts the
// centroids to the density that a bundle's K_max asks for.
//
//   - kmeans.go: k-means in Hamming space: the majority of the members' masks is the next centroid (k-majority).
//   - sample.go: distinct masks, the training sample, the first centroids.
//   - assign.go: nearest centroids; count.go: bit counts and majorities, 64 neurons at a time.
//   - run.go: the stage; a table is a unit that an interrupted run need not do again.
//   - prune.go: Prune, which writes the bundle's centroids member.
//
// Invariants. K_eff = min(K, distinct masks); no centroid is empty, no two are equal; ties go to the lowest id. The
// same masks and seed give the same bytes whatever the thread count: all arithmetic is on integers.
//
// It may import format/..., kernels, runtime/predictor, prep/calib and prep/stage. Start at Run and at kMajority.
package cluster
