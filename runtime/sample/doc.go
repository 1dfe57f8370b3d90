// Package sample chooses the next token from logits.
//
// Order, as in Hugging Face transformers: repetition penalty → temperature → top-k → top-p → min-p → draw. Temperature 0 is greedy: the largest
// logit after the penalty, ties to the lower id, nothing drawn. Top-k keeps exactly k (ties to the lower id); top-p keeps the fewest best tokens that
// reach the mass; min-p keeps what has at least that part of the best token's probability. At least one token is always kept.
//
// The same parameters, seed and logits give the same tokens on any machine: the generator is PCG, sums are float64 in a fixed order.
// Nothing is allocated per token after the first. A Sampler belongs to one generation and one goroutine.
//
// Imports: format for error kinds. Start at New and Sample.
package sample
