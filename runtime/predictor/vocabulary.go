package predictor

import "neuroprefetcher/kernels"

// Vocabulary is a Selector whose scores follow from centroid ids: one for each of Tables of a layer. A ladder asks it
// what it would score if the ids were right: Observe, then for each layer RightIDs and SetIDs, then Scores.
type Vocabulary interface {
	Selector
	// Tables is how many ids a layer has: 2 where gate and up have their own, else 1.
	Tables() int
	// RightIDs writes the layer's ids (Tables) that fit a token best, given what the layer computes for it: gate and up
	// outputs before the activation (M), and every neuron's ‖down‖₂ (M). It changes no id.
	RightIDs(layer int, gate, up, down []float32, ids []int32)
	// SetIDs puts ids (Tables) in the place of those predicted for the observed token, with certainty.
	SetIDs(layer int, ids []int32)
}

var _ Vocabulary = (*Paper)(nil)

func (s *Paper) Tables() int { return len(Projections) }

// RightIDs names the centroids that share most neurons with the token's masks at the calibrated thresholds. All pruned
// centroids of a table have equally many, so these are the nearest ones; ties go to the lower id.
func (s *Paper) RightIDs(layer int, gate, up, _ []float32, ids []int32) {
	s.c.RightIDs(layer, gate, up, ids)
}

func (s *Paper) SetIDs(layer int, ids []int32) {
	s.gate[layer-s.c.First], s.up[layer-s.c.First] = ids[0], ids[1]
}

// RightIDs names the gate and the up centroid that share most neurons with a token's masks, ties to the lower id. gate
// and up (M) are the layer's outputs before the activation; they are not changed.
func (c *Centroids) RightIDs(layer int, gate, up []float32, ids []int32) {
	kernels.SiLU(c.act, gate)
	for p, x := range [][]float32{c.act, up} {
		kernels.MaskAtLeast(c.mask, x, c.thresholds[2*layer+p])
		t := &c.tables[p][layer-c.First]
		best, most := 0, -1
		for k := range t.k {
			if n := kernels.AndCount(c.mask, t.masks[k*c.words:(k+1)*c.words]); n > most {
				best, most = k, n
			}
		}
		ids[p] = int32(best)
	}
}
