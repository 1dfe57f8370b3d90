package lowrank

import (
	"io"
	"math"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

const (
	group = kernels.Q4Group
	top   = 7 // codes are −7..7

	// A group's scale is one of these shares of its peak ÷ top: of a few, the one that leaves the least squared error.
	scaleTries = 9
	scaleStep  = 0.05
)

// Matrix is a matrix in rounded form; columns are padded to whole groups with codes of zero.
type Matrix struct {
	rows, cols int
	codes      []int8   // (rows, padded)
	scales     []uint16 // (rows, padded ÷ group) float16
}

func (q *Matrix) padded() int { return (q.cols + group - 1) / group * group }

// Values are what the codes stand for (rows, cols).
func (q *Matrix) Values() []float64 {
	out, pad := make([]float64, 0, q.rows*q.cols), q.padded()
	for r := range q.rows {
		for c := range q.cols {
			at := r*pad + c
			out = append(out, float64(q.codes[at])*float64(kernels.F16Value(q.scales[at/group])))
		}
	}
	return out
}

// Encode rounds x (rows, cols) to 4-bit codes.
func Encode(x []float64, rows, cols int) *Matrix {
	q := &Matrix{rows: rows, cols: cols}
	pad := q.padded()
	q.codes, q.scales = make([]int8, rows*pad), make([]uint16, rows*pad/group)
	for r := range rows {
		for lo := 0; lo < cols; lo += group {
			v := x[r*cols+lo : r*cols+min(lo+group, cols)]
			at := r*pad + lo
			q.scales[at/group] = bestScale(v)
			s := float64(kernels.F16Value(q.scales[at/group]))
			for i, v := range v {
				q.codes[at+i] = int8(code(v, s))
			}
		}
	}
	return q
}

func bestScale(x []float64) (best uint16) {
	peak := 0.0
	for _, v := range x {
		peak = max(peak, math.Abs(v))
	}
	least := math.Inf(1)
	for try := range scaleTries {
		bits := kernels.F16Bits(float32(min(peak/top*(1-scaleStep*float64(try)), maxHalf)))
		s, miss := float64(kernels.F16Value(bits)), 0.0
		for _, v := range x {
			d := v - s*code(v, s)
			miss += d * d
		}
		if miss < least {
			least, best = miss, bits
		}
	}
	return best
}

func code(v, scale float64) float64 {
	if scale == 0 {
		return 0
	}
	return min(max(math.RoundToEven(v/scale), -top), top)
}

// Entries are the tensors of a factor.
func (q *Matrix) Entries(name string) []tensors.Entry {
	pad := q.padded()
	b := make([]byte, q.rows*pad/2)
	for r := range q.rows {
		kernels.PackQ4(b[r*pad/2:(r+1)*pad/2], q.codes[r*pad:(r+1)*pad])
	}
	return []tensors.Entry{
		{Name: name, DType: "U8", Shape: []int{q.rows, pad / 2}, Write: func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		}},
		tensors.F16Entry(name+".scales", []int{q.rows, pad / group}, q.scales),
	}
}

// maxHalf is float16's largest value: what is beyond it is stored as it.
const maxHalf = 65504

// Halves is a vector in float16.
func Halves(name string, x []float64) tensors.Entry {
	h := make([]uint16, len(x))
	for i, v := range x {
		h[i] = kernels.F16Bits(float32(min(max(v, -maxHalf), maxHalf)))
	}
	return tensors.F16Entry(name, []int{len(x)}, h)
}
