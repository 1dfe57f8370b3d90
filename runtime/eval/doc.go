// Package eval measures what a bundle's text is worth: log-probabilities of given tokens and perplexity of a text, by
// the same engine that generates.
//
// In resident and stream mode a window runs through whole layers at once. In sparse mode its first token does, as in a
// prompt (it is the attention sink), and every later token is one step of the token loop with its rows read from disk.
//
// It may import runtime/engine and runtime/model. Start at LogProbs.
package eval
