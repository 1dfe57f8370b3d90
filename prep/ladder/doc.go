// Package ladder measures what leaving neurons out costs: perplexity, agreement with the exact model and HellaSwag, from
// the exact model down over the best possible choice of K_max neurons and each selector, with perfect and with predicted
// choice, to a fixed set; beside each what it reads.
//
//   - rung.go: Rung, one configuration, and the list of them.
//   - weights.go: the bundle's weights in memory; selectors.go: its selectors.
//   - strip.go: tokens that pass the layers together, a window of text or an item with its endings.
//   - dense.go: the exact pass, and what of it all rungs share; sparse.go: one rung's pass over a strip; device.go: both
//     by the kernels of the token loop.
//   - pick.go: the slot maps of a pass. truth.go: what a layer computed, held against what was chosen.
//   - means.go: what neurons that are left out add on average.
//   - windows.go: perplexity; items.go: HellaSwag; state.go: results that are kept for the next run; report.go: figures.
//
// The protocol is that of runtime/eval in sparse mode, on the weights, selectors, chooser and slot maps that a device
// uses: a window's first token runs through whole layers, and its importance chooses what is resident then; every later
// token computes K_max neurons in every layer behind the dense prefix. Slot maps live on from window to window, and
// begin empty for every HellaSwag item, or as the shots left them. A layer computes all tokens of a window before the next
// layer, by matrix products: they round differently in the last bits, which turns a choice now and then (a perplexity moves
// by about 1e-3 of itself on SmolLM2, which is below its standard error). Options.Device takes the kernels of the token loop instead: the figures
// are then those of nprun eval, bit for bit.
//
// It may import format/..., kernels, runtime/..., prep/lowrank and prep/stage. Start at Run.
package ladder
