// Package assemble is the bundle stage: it puts the outputs of the other stages together in one directory and
// publishes it.
//
// The directory is built beside its final place and moved there by one rename, the manifest written last; a
// bundle already there stays good until that moment. Members are hard-linked from the work folder when both lie
// on one file system, else copied.
//
// Imports: format, prep/stage, prep/cluster for pruning centroids to the wanted K_max; runtime/tokenizer and runtime/chat to
// refuse early what nprun would. Start at Run.
package assemble
