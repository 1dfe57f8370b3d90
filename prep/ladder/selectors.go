package ladder

import (
	"context"
	"slices"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// selector is one of a bundle's, with what the ladder wants to know of it.
type selector struct {
	predictor.Selector
	step  predictor.Stepwise   // nil: all layers are named behind layer 0
	vocab predictor.Vocabulary // nil: it has no ids to be given
	names [][]int              // of a stepwise one: the layers named at each site
	gate0 func(gate []float32) int32
	means *predictor.Means // nil: nothing stands in for what it leaves out
}

// loadSelector reads a selector of the bundle for layers from first on, and its means from a file: "" for the bundle's, if it
// has any, NoMeans for none.
func loadSelector(ctx context.Context, b *bundle.Bundle, name string, first int, means string) (*selector, error) {
	s, err := predictor.Open(b, name, first)
	if err != nil {
		return nil, err
	}
	for _, m := range bundle.SelectorMembers(name) {
		if err := b.VerifyMember(ctx, m); err != nil {
			return nil, err
		}
	}
	c := &b.Manifest.Model
	w := wrapSelector(s, c.Layers, c.Hidden)
	if means == "" && b.Has(bundle.MemberMeans) {
		if err := b.VerifyMember(ctx, bundle.MemberMeans); err != nil {
			return nil, err
		}
		means = b.Path(bundle.MemberMeans)
	}
	if means != "" && means != NoMeans {
		if w.means, err = predictor.LoadMeans(means, name, c, first); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// wrapSelector finds out what a selector can do.
func wrapSelector(s predictor.Selector, layers, hidden int) *selector {
	w := &selector{Selector: s}
	w.step, _ = s.(predictor.Stepwise)
	w.vocab, _ = s.(predictor.Vocabulary)
	if g, ok := s.(interface{ Gate0(gate []float32) int32 }); ok {
		w.gate0 = g.Gate0
	}
	if w.step != nil {
		// Which layers a site names does not depend on the stream.
		zero := make([]float32, hidden)
		for site := range 2 * layers {
			w.names = append(w.names, slices.Clone(w.step.Look((*kernels.Pool)(nil), site, zero)))
		}
	}
	return w
}
