package model

import (
	"encoding/binary"
	"math"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Converter turns pieces of one source tensor into float16 or float32. Its scratch belongs to one goroutine.
type Converter struct {
	info tensors.Info
	file string // for messages
	Size int    // bytes of a source element
	u16  []uint16
	f32  []float32

	Underflow int64 // non-zero values below 2^-14 that float16 does not hold exactly
}

// NewConverter refuses a type that has no float16. file names the tensor's file in messages.
func NewConverter(file string, info tensors.Info) (*Converter, error) {
	c := &Converter{info: info, file: file}
	switch info.DType {
	case "F16", "BF16":
		c.Size = 2
	case "F32":
		c.Size = 4
	default:
		return nil, format.Inputf("%s: tensor %s: dtype %s cannot be converted to float16", file, info.Name, info.DType)
	}
	return c, nil
}

// Clone gives another goroutine a converter of its own.
func (c *Converter) Clone() *Converter { return &Converter{info: c.info, file: c.file, Size: c.Size} }

// minNormal is the smallest float16 pattern with full precision, 2^-14.
const minNormal = 0x0400

// F16 converts len(dst) elements of the source's bytes, the first of which is element at of the tensor.
func (c *Converter) F16(dst []uint16, src []byte, at int64) error {
	if c.info.DType == "F16" {
		copy(kernels.U16Bytes(dst), src)
	} else {
		x := c.widen(src, len(dst))
		kernels.F32ToF16(dst, x)
		for i, h := range dst {
			if a := h &^ 0x8000; a <= minNormal && kernels.F16Value(h) != x[i] {
				c.Underflow++
			}
		}
	}
	for i, h := range dst {
		if h&0x7c00 == 0x7c00 {
			return c.refuse(src, i, at)
		}
	}
	return nil
}

// F32 converts n elements exactly, in scratch that the next call overwrites.
func (c *Converter) F32(src []byte, n int, at int64) ([]float32, error) {
	x := c.widen(src, n)
	for i, v := range x {
		if v-v != 0 { // infinite or NaN
			return nil, c.refuse(src, i, at)
		}
	}
	return x, nil
}

// widen gives n source elements as float32, in scratch. The source may lie at any address.
func (c *Converter) widen(src []byte, n int) []float32 {
	if cap(c.f32) < n {
		c.f32 = make([]float32, n)
	}
	x := c.f32[:n]
	if c.info.DType == "F32" {
		copy(kernels.F32Bytes(x), src)
		return x
	}
	if cap(c.u16) < n {
		c.u16 = make([]uint16, n)
	}
	u := c.u16[:n]
	copy(kernels.U16Bytes(u), src)
	if c.info.DType == "F16" {
		kernels.F16ToF32(x, u)
	} else {
		kernels.BF16ToF32(x, u)
	}
	return x
}

// refuse names the value that stopped the conversion: element i of src, at+i of the tensor.
func (c *Converter) refuse(src []byte, i int, at int64) error {
	b := src[i*c.Size:]
	var v float32
	switch c.info.DType {
	case "F32":
		v = math.Float32frombits(binary.LittleEndian.Uint32(b))
	case "BF16":
		v = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	default:
		v = kernels.F16Value(binary.LittleEndian.Uint16(b))
	}
	where := at + int64(i)
	switch {
	case v != v:
		return format.Inputf("%s: tensor %s: element %d is NaN", c.file, c.info.Name, where)
	case math.IsInf(float64(v), 0):
		return format.Inputf("%s: tensor %s: element %d is infinite", c.file, c.info.Name, where)
	}
	return format.Hint(format.Inputf("%s: tensor %s: element %d is %g, beyond float16's largest value 65504", c.file, c.info.Name, where, v),
		"weights of this size cannot be stored as float16; use another checkpoint of the model")
}
