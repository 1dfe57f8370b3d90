package predictor

import "neuroprefetcher/kernels"

// Namer is a Vocabulary that tells which ids it found likeliest for the observed token, so that they can be held against
// the right ones.
type Namer interface {
	Vocabulary
	// NamedIDs writes the layer's likeliest ids (Tables).
	NamedIDs(layer int, ids []int32)
}

var (
	_ Namer = (*Paper)(nil)
	_ Namer = (*Mixture)(nil)
)

func (s *Paper) NamedIDs(layer int, ids []int32) { ids[0], ids[1] = s.IDs(layer) }

func (s *Mixture) NamedIDs(layer int, ids []int32) {
	n := s.Tables()
	for t := range n {
		ids[t] = int32(kernels.MaxIndex(s.p.logits[(layer-s.first)*n+t]))
	}
}
