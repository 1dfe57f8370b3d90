// Package runtime is the device side, in the order in which a token meets it:
//
//	tokenizer  text ⇄ token ids            chat  messages → prompt
//	model      the transformer's forward pass
//	predictor  which neurons the coming layers need (selectors)
//	resident   chooser, delta and slot map of a sparse layer
//	storage    reads from the drive
//	engine     the token loop and the memory plan; start here
//	sample     logits → the next token     eval  log-probabilities, perplexity
//
// It may import format/... and kernels, never prep.
package runtime
