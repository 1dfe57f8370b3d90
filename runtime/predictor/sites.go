package predictor

import "neuroprefetcher/kernels"

// A site is a place of the residual stream: 2l is the input of layer l, 2l+1 lies between its attention and its MLP. A
// lag is how many sites before a layer's MLP its neurons are named: lag 1 looks at the layer's own input, lag 2 at the
// stream behind the attention of the layer before, lag 3 at the input of the layer before. In layers it is (lag−1)/2.

// MaxLag bounds lags.
const MaxLag = 64

// MLPSite is the site whose normed stream is layer l's MLP input.
func MLPSite(layer int) int { return 2*layer + 1 }

// Source is the site that names layer l's neurons at a lag: the first one where the model is not that deep.
func Source(layer, lag int) int { return max(0, MLPSite(layer)-lag) }

// RampSource is the site that names layer l where the first sparse layers' reads begin while the dense prefix still
// computes: with d dense layers and a ramp of r, layer d+j, j < r, is named r−j layers earlier than its lag alone would.
func RampSource(layer, lag, dense, ramp int) int {
	if j := layer - dense; j >= 0 && j < ramp {
		lag += 2 * (ramp - j)
	}
	return Source(layer, lag)
}

// Stepwise is a Selector that looks at the residual stream while a token passes through the layers, and names the
// neurons of each layer some way ahead.
type Stepwise interface {
	Selector
	// Look takes in the residual stream x (H) at a site, and returns the layers, ascending, whose Scores can be asked for
	// until the next Look; none at most sites. x and the layers stay their owners'. Sites come in ascending order.
	Look(pool *kernels.Pool, site int, x []float32) []int
}
