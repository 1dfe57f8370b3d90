// Package train fits the predictor of runtime/predictor to the captured layer-0 features and the clusters' ids, and the
// network of the selector `centroid` to the vocab stage's.
//
//   - size.go: how wide the network is, and what it weighs.
//   - net.go: the parameters, one flat slice in a fixed order, and their beginning.
//   - forward.go, backward.go: the network and its gradient over a batch; the definition is predictor.Blocks'.
//   - adamw.go: the optimizer and the learning rate.
//   - data.go: batches from the capture and cluster stages' files, and the held-out windows.
//   - run.go: the stage; state.go: an epoch is a unit that an interrupted run need not do again.
//   - layout.go: the tensors of the network's file.
//   - exchange.go: the data set for training elsewhere, and the weights that come back.
//
// Shapes are written (rows, columns): B tokens of a batch, H hidden, T the network's width, F = Expand·T, K centroids.
//
// Invariants. The same files and seed give the same bytes whatever the thread count: matrix products do not depend on
// it, everything else is split over outputs or summed in one order.
//
// It may import format/..., kernels, runtime/predictor, prep/calib and prep/stage. Start at Run.
package train
