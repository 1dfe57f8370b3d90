// Package runtime is the device side, in the order in which a token meets it:
//
//	tokenizer  text ⇄ token ids            chat  messages → prompt
//	model      the transformer's forward pass
//	predictor  which neurons the coming layers need (selectors)
//	resident   chooser, delta and slot map of a sparse layer
//	storage    reads from the drive
//	engine     the token loop and the memory plan; start here
//	sample     logits → the next token     eval  log-probabilities, perplexity
//	serve      OpenAI-shaped requests over HTTP, and a page
//	measure    what the drive gives, which dense prefix is the fastest
//	synthetic  bundles of random weights and traces, for measuring at full size
//
// It may import format/... and kernels, never prep.
package runtime
