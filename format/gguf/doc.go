// Package gguf reads GGUF model files, versions 2 and 3, little endian: the key-value header, the tensor table, and rows of any tensor dequantised to float32.
// It writes version 3.
//
// It may import package format and nothing else of ours.
//
// Invariants:
//   - Nothing is allocated because the file says so before the claim was checked against the file's size and a named limit (limits.go).
//   - A File that Open returned is consistent: no key and no tensor name appears twice, every tensor lies inside the file, no two overlap, every type is known by name.
//   - The bytes of tensors are read with pread, a bounded piece at a time; an open File holds the header only.
//   - Shapes are row-major, outermost first, as in Hugging Face checkpoints: the reverse of the order in the file.
//   - A file that Write makes appears whole or not at all, and Open takes it.
//
// Start at Open (open.go); decode.go walks the header, dequant.go and kquant.go hold the block formats; write.go is the way back.
package gguf
