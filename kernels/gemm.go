package kernels

import "fmt"

// Matrix is a view of float32 or float16 numbers with any strides. Exactly one of F32 and F16 is set (neither, for
// an empty matrix); element (i, j) is at index i*RowStride + j*ColStride. It owns nothing.
type Matrix struct {
	Rows, Cols           int
	F32                  []float32
	F16                  []uint16
	RowStride, ColStride int // in elements
}

// F32Matrix views data as rows x cols, row-major, consecutive rows stride elements apart.
func F32Matrix(data []float32, rows, cols, stride int) Matrix {
	m := Matrix{Rows: rows, Cols: cols, F32: data, RowStride: stride, ColStride: 1}
	m.check("matrix")
	return m
}

// F16Matrix views float16 bit patterns as rows x cols, row-major, consecutive rows stride elements apart.
func F16Matrix(data []uint16, rows, cols, stride int) Matrix {
	m := Matrix{Rows: rows, Cols: cols, F16: data, RowStride: stride, ColStride: 1}
	m.check("matrix")
	return m
}

// T is the transpose; it shares the data.
func (m Matrix) T() Matrix {
	m.Rows, m.Cols = m.Cols, m.Rows
	m.RowStride, m.ColStride = m.ColStride, m.RowStride
	return m
}

// check panics if an element of m lies outside its data: that is a mistake of the caller, never of a file. Everything
// behind Gemm, the assembly above all, relies on it.
func (m *Matrix) check(name string) {
	if m.Rows < 0 || m.Cols < 0 || m.RowStride < 0 || m.ColStride < 0 {
		panic(fmt.Sprintf("kernels: %s is %d x %d with strides %d, %d", name, m.Rows, m.Cols, m.RowStride, m.ColStride))
	}
	if m.Rows == 0 || m.Cols == 0 {
		return
	}
	n := len(m.F32)
	if m.F16 != nil {
		if m.F32 != nil {
			panic(fmt.Sprintf("kernels: %s has float32 and float16 data", name))
		}
		n = len(m.F16)
	}
	if need := (m.Rows-1)*m.RowStride + (m.Cols-1)*m.ColStride + 1; need > n {
		panic(fmt.Sprintf("kernels: %s of %d x %d with strides %d, %d needs %d elements, has %d",
			name, m.Rows, m.Cols, m.RowStride, m.ColStride, need, n))
	}
}

// GemmKC is the length of the blocks into which Gemm cuts the inner dimension. A caller that cuts the inner dimension
// itself, at multiples of GemmKC and with accumulate set from the second call on, gets the bits of a single call.
const GemmKC = 256

// Gemm sets C = A·B, or C += A·B with accumulate. C is float32 with ColStride 1; A and B may be float32 or float16
// with any strides, so that a transpose costs nothing to ask for. C must not overlap A or B.
//
// Every element of C is a chain of its own: within a block of GemmKC its products are added with k ascending, starting
// at zero; block sums are added to C with k ascending. So a row's bits depend neither on the number of threads nor on
// the other rows and columns of the call. Memory for packing is kept from call to call: some 400 KiB per thread.
func Gemm(p *Pool, c, a, b Matrix, accumulate bool) {
	c.check("C")
	a.check("A")
	b.check("B")
	if a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows {
		panic(fmt.Sprintf("kernels: gemm of (%d x %d) and (%d x %d) into (%d x %d)", a.Rows, a.Cols, b.Rows, b.Cols, c.Rows, c.Cols))
	}
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	if c.F32 == nil || c.ColStride != 1 || c.Rows > 1 && c.RowStride < c.Cols {
		panic("kernels: gemm needs a float32 C with column stride 1 and rows that do not overlap")
	}
	if a.Cols == 0 {
		if !accumulate {
			for i := range c.Rows {
				clear(c.F32[i*c.RowStride:][:c.Cols])
			}
		}
		return
	}
	j := gemmJobs.get()
	j.start(p.Threads(), c, a, b, accumulate)
	p.Run(j.rowBlocks*j.colBlocks, 1, j.run)
	j.stop()
	gemmJobs.put(j)
}
