package regress

import (
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
)

const (
	share      = 0.03          // the factors' largest share of the model's bytes,
	smallShare = 0.04          // or this, for models
	smallModel = 1_000_000_000 // below this many parameters
	earlyRank  = 32            // of layers in the dense prefix that the bundle is made for: they are used only where memory is short
	maxRank    = 512
	rankStep   = kernels.Q4Group // a row of Out has a code for each rank, in groups
)

// DefaultDense is the dense prefix that a bundle is made for where none is given: a third of the layers, as errors made in
// earlier ones grow on their way through the rest.
func DefaultDense(layers int) int { return max(1, layers/3) }

// modelBytes is the model in float16.
func modelBytes(c *checkpoint.Config) int64 {
	h, kv, q := int64(c.Hidden), int64(c.KVHeads*c.HeadDim), int64(c.Heads*c.HeadDim)
	n := int64(c.Layers)*(h*(2*q+2*kv)+3*h*int64(c.Intermediate)+2*h) + int64(c.Vocab)*h + h
	if !c.Tied {
		n += int64(c.Vocab) * h
	}
	return 2 * n
}

// layerBytes is what the factors of a layer take in the file.
func layerBytes(c *checkpoint.Config, rank int) int64 {
	pad := func(n int) int64 { return int64((n + kernels.Q4Group - 1) / kernels.Q4Group * kernels.Q4Group) }
	codes := int64(rank)*pad(c.Hidden) + int64(c.Intermediate)*pad(rank)
	return 2*codes*(kernels.Q4Group/2+2)/kernels.Q4Group + 4*int64(c.Hidden) + 5*2*int64(c.Intermediate)
}

// fileBytes is what all layers take whose ranks are given from layer 1 on.
func fileBytes(c *checkpoint.Config, ranks []int) (n int64) {
	for _, r := range ranks {
		n += layerBytes(c, r)
	}
	return n
}

// ranks gives every layer from 1 on its rank: rank for those after the dense prefix, little for the others. Zero takes
// the largest multiple of 32 up to 512 that keeps the file within its share of the model.
func ranks(c *checkpoint.Config, dense, rank int) []int {
	out := make([]int, c.Layers-1)
	fill := func(r int) []int {
		for i := range out {
			out[i] = min(r, c.Hidden)
			if i+1 < dense {
				out[i] = min(out[i], earlyRank)
			}
		}
		return out
	}
	if rank > 0 {
		return fill(rank)
	}
	limit := share * float64(modelBytes(c))
	if modelBytes(c) < 2*smallModel {
		limit = smallShare * float64(modelBytes(c))
	}
	r := min(maxRank, (c.Hidden+rankStep-1)/rankStep*rankStep)
	for r > rankStep && float64(fileBytes(c, fill(r))) > limit {
		r -= rankStep
	}
	return fill(r)
}
