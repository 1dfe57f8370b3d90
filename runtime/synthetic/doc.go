// Package synthetic makes what a measurement at full size needs when there is no checkpoint: a bundle of random weights
// in the shape of a known model, and a trace of active sets to replay through the engine.
//
//	shape.go    the named shapes
//	bundle.go   Ensure: the bundle on disk, real size, written once and reused
//	members.go  its small and resident members
//	random.go   float16 values straight from random bits
//	trace.go    Trace: which neurons each token wants, with a given reuse
//	file.go     the trace as a file
//	replay.go   Replay: a selector whose active sets are the trace's
//
// Nothing here says anything about quality: the text is noise. What is measured is the machine: bytes, reads, waits.
//
// The same shape, parameters and seed give the same bytes on any machine. It may import format/..., kernels and
// runtime/predictor. Start at Ensure and NewTrace.
package synthetic
