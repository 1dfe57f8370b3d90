// Package format holds what every reader and writer of files shares: the kinds of error that become exit codes
// (errors.go), the limits that lengths from disk are held against before anything is allocated (limits.go), files
// that appear whole or not at all (atomic.go), careful reading of small files and of JSON (read.go, json.go).
//
// What is on disk has its own packages below this one:
//
//	tensors     safetensors files, strictly read, streamed out
//	checkpoint  a Hugging Face model directory: which files, which tensors, what its configuration means
//	gguf        GGUF files
//	bundle      our own prepared directory
//
// It may import nothing of this module; the packages below it may import it and each other. Untrusted bytes never
// panic. Every refusal is one line that names the file and the tensor or key. Start at errors.go.
package format
