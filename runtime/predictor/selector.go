package predictor

import "neuroprefetcher/kernels"

// Selector gives, for one token at a time, a score per neuron of every sparse layer; the chooser keeps the best. It is
// not safe for concurrent use, allocates nothing per token, and gives the same scores whatever the thread count.
type Selector interface {
	Name() string
	// NeedsLayer0 tells that Observe must see layer 0's features before Scores is asked.
	NeedsLayer0() bool
	// Observe takes in a token. The features stay the caller's.
	Observe(pool *kernels.Pool, f *Features)
	// Scores writes a score per neuron of the layer into dst (M); larger is more wanted.
	Scores(layer int, dst []float32)
	// Pins are the neurons of a layer that must stay resident, ascending.
	Pins(layer int) []int32
	// Bytes is what the selector holds in memory.
	Bytes() int64
}
