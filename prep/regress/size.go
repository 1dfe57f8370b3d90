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

// split shares the 2·rank directions of a layer out between gate and up, in whole groups of codes and at most most each, so
// that they explain the most weighted energy. Gate's are worth more: on SmolLM2-135M with 288 each, 12 layers and K_max = 0.5 M
// the perplexity is 1.053 of the exact model's, with 352 and 224 it is 1.048, with 224 and 352 1.062.
func split(gate, up []float64, rank, most int) [2]int {
	ranks := [2]int{rank, rank}
	gain := func(spectrum []float64, from, to int) (sum float64) {
		for _, v := range spectrum[from:to] {
			sum += v
		}
		return sum
	}
	spectra := [2][]float64{gate, up}
	for p, q := range []int{1, 0} { // from q to p as long as it pays
		for ranks[q] > rankStep && ranks[p]+rankStep <= most &&
			gain(spectra[p], ranks[p], ranks[p]+rankStep) > gain(spectra[q], ranks[q]-rankStep, ranks[q]) {
			ranks[p], ranks[q] = ranks[p]+rankStep, ranks[q]-rankStep
		}
	}
	return ranks
}
