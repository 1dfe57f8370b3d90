package train

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/runtime/predictor"
)

const (
	paperDim   = 512           // T at 7B and above
	share      = 0.03          // the predictor's largest share of the model's parameters,
	smallShare = 0.04          // or this, for models
	smallModel = 1_000_000_000 // below this many parameters
	dimStep    = 8             // T is a multiple of it
)

// ModelParams counts the parameters of a model.
func ModelParams(c *checkpoint.Config) int64 { return c.Params() }

// Params counts the parameters of a predictor of width t whose tables have k centroids each.
func Params(c *checkpoint.Config, k, t int) int64 {
	return params0(c, k, 2*(c.Layers-1), k, t)
}

// params0 counts those of a network with k0 centroids of layer 0 and that many heads of k centroids each.
func params0(c *checkpoint.Config, k0, heads, k, t int) int64 {
	h, w := int64(c.Hidden), int64(t)
	return 4*h*w + int64(k0)*w + predictor.Blocks*(w+2*predictor.Expand*w*w) + w + int64(heads)*int64(k)*(w+1)
}

// jointDim is the width of the network of joint vocabularies: as DefaultDim, within half its share.
func jointDim(c *checkpoint.Config, k0, heads, k int) int {
	model := ModelParams(c)
	limit := share / 2 * float64(model)
	if model < smallModel {
		limit = smallShare / 2 * float64(model)
	}
	t := paperDim
	for t > dimStep && float64(params0(c, k0, heads, k, t)) > limit {
		t -= dimStep
	}
	return t
}

// DefaultDim is the largest multiple of 8 up to 512 that keeps the predictor within its share of the model, at least 8.
func DefaultDim(c *checkpoint.Config, k int) int {
	model := ModelParams(c)
	limit := share * float64(model)
	if model < smallModel {
		limit = smallShare * float64(model)
	}
	t := paperDim
	for t > dimStep && float64(Params(c, k, t)) > limit {
		t -= dimStep
	}
	return t
}
