package engine

import "neuroprefetcher/runtime/predictor"

// WrapSelector makes the selector that is used from the bundle's own, for the plan that was chosen. It is how a
// measurement replays recorded active sets and pays for the bundle's selector all the same. The selector's memory is not
// part of the plan unless the process holds it before Open.
type WrapSelector func(inner predictor.Selector, p *Plan) (predictor.Selector, error)

// wrapSelector puts Options.Wrap before the bundle's selector.
func (e *Engine) wrapSelector() (err error) {
	if e.opts.Wrap == nil || e.selector == nil {
		return nil
	}
	if e.selector, err = e.opts.Wrap(e.selector, e.Plan); err != nil {
		return err
	}
	if e.selector.NeedsLayer0() && e.features.Embed == nil {
		h := e.Config.Hidden
		f := func() []float32 { return make([]float32, h) }
		e.features = predictor.Features{Embed: f(), AttnOut: f(), MLPIn: f(), Resid: f()}
	}
	return nil
}

// Active are the neurons that a sparse layer computed for the last token, ascending; nil for other layers. They are valid
// until the next step.
func (e *Engine) Active(layer int) []int32 {
	if e.sparse[layer] == nil {
		return nil
	}
	return e.sparse[layer].active
}

// Threads is how many threads compute.
func (e *Engine) Threads() int { return e.m.Pool.Threads() }
