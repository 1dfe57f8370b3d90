// Package exporter turns a bundle into one GGUF file with the same weights bit for bit, so that llama.cpp can be measured, or checked, beside nprun.
//
// It may import format and its packages and kernels.
//
// Invariants:
//   - The file appears whole or not at all, and one that already holds these very weights is left alone.
//   - Memory is bounded whatever the model's size: records are read a piece at a time, the transposed matrices a block of rows at a time.
//   - Every record is held against its checksum before its weights are used.
//   - Names and the order of query and key rows are llama.cpp's (prep/importer has the way back). The tokenizer stays behind: the file says "no_vocab", so
//     its user talks in token ids.
//
// Start at Export (exporter.go); tensors.go lists what is written, rows.go reads the records.
package exporter
