// Package forward runs a checkpoint's dense forward pass over calibration windows, layer by layer: all windows of a
// group pass one layer before the next is loaded, so memory holds one layer and one group (and more layers only where
// the budget has room).
//
// It may import format/..., kernels, runtime/model and prep/calib. Start at New and Group.Layer.
package forward
