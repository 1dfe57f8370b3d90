package gguf

import "io"

// Tensor is one entry of the tensor table.
type Tensor struct {
	Name   string
	Type   string // ggml's name of the type, such as "Q4_K"
	Shape  []int  // row-major, outermost first
	Offset int64  // absolute, in the file
	Size   int64  // bytes
}

// File is an open GGUF file. Methods may be called from several goroutines.
type File struct {
	// KV holds the header's values: uint8 … int64, float32, float64, bool, string, or a slice of one of these for arrays.
	KV      map[string]any
	Tensors []Tensor // in the file's order
	Version int      // 2 or 3

	path  string
	r     io.ReaderAt // the file
	close func() error
	size  int64
	index map[string]int
}
