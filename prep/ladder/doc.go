// Package ladder measures what leaving neurons out costs: perplexity, agreement with the exact model and HellaSwag, from
// the exact model down over the best possible choice of K_max neurons and each selector, with perfect and with predicted
// choice, to a fixed set; beside each what it reads.
//
//   - rung.go: Rung, one configuration, and the list of them.
//   - weights.go: the bundle's weights in memory; selectors.go: its selectors.
//   - strip.go: tokens that pass the layers together, a window of text or an item with its endings.
//   - dense.go: the exact pass, and what of it all rungs share; sparse.go: one rung's pass over a strip.
//   - pick.go: the slot maps of a pass. truth.go: what a layer computed, held against what was chosen.
//   - windows.go: perplexity; items.go: HellaSwag; state.go: results that are kept for the next run; report.go: figures.
//
// The protocol is that of runtime/eval in sparse mode, on the weights, selectors, chooser and slot maps that a device
// uses: a window's first token runs through whole layers, and its importance chooses what is resident then; every later
// token computes K_max neurons in every layer behind the dense prefix. Slot maps live on from window to window. What
// differs is the order of the work: a layer computes all tokens of a window before the next layer, by matrix products
// that are rounded differently in the last bits.
//
// It may import format/..., kernels, runtime/... and prep/stage. Start at Run.
package ladder
