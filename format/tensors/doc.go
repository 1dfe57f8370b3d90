// Package tensors reads safetensors files strictly and writes them as streams.
//
// A file is
//
//	0      8  length N of the header, little-endian
//	8      N  JSON: {"name": {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {..}}
//	8+N    .. payload; offsets are relative to its beginning and tile it exactly
//
// github.com/nlpodyssey/safetensors parses and encodes headers and knows the dtypes. Around it stand checks that it does
// not make: repeated keys, what surrounds the JSON, names in every message, and a file that is never read whole.
// The payload is mapped read-only; nothing is allocated from a number in the file before it was held against the file's size.
//
// It may import format only. Start at Open and Write.
package tensors
