// Package self lets a model write its own calibration text, for when there is none at hand.
//
//   - self.go: the stage; a strand of the text is a unit that an interrupted run need not do again.
//   - write.go: the strands that run side by side, one token of each per step.
//   - start.go: how a document begins.
//
// The text is a number of strands of as many tokens as a window has; a strand is one document, or more where the model
// ends one before. A document begins with the beginning token alone or with a word drawn from the vocabulary, and goes
// on by sampling. A strand depends on the seed and its number alone: not on which run beside it (model.Many), not on the
// thread count, not on how often the run was interrupted.
//
// It may import format/..., kernels, runtime/model, runtime/sample, runtime/tokenizer, prep/calib/... and prep/stage.
// Start at Run.
package self
