package tensors

import "io"

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType string // as in the file: "F16", "BF16", "F32", ..
	Shape []int  // row-major, outermost first; empty for a scalar
	// Begin and End are absolute offsets in the file. Begin need not be aligned.
	Begin, End int64
}

// Entry is one tensor to be written. Write streams exactly the bytes that DType and Shape call for.
type Entry struct {
	Name, DType string
	Shape       []int
	Write       func(w io.Writer) error
}
