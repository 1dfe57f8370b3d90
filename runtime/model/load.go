package model

import (
	"fmt"
	"io"
	"os"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Source gives tensors by their Hugging Face names, converted while they are copied.
type Source interface {
	Has(name string) bool
	Halves(dst []uint16, name string) error  // as float16
	Floats(dst []float32, name string) error // as float32
}

// Alloc returns n zeroed float16 elements that live as long as the model. A nil Alloc is make.
type Alloc func(n int) []uint16

func (a Alloc) halves(n int) []uint16 {
	if a == nil {
		return make([]uint16, n)
	}
	return a(n)
}

// Load fills the embedding, the head, the final norm and, when layers is true, every layer's resident part.
func (m *Model) Load(src Source, alloc Alloc, layers bool) error {
	c := m.Config
	m.Embed = alloc.halves(c.Vocab * c.Hidden)
	if err := src.Halves(m.Embed, "model.embed_tokens.weight"); err != nil {
		return err
	}
	m.Head = m.Embed
	if !c.Tied {
		m.Head = alloc.halves(c.Vocab * c.Hidden)
		if err := src.Halves(m.Head, "lm_head.weight"); err != nil {
			return err
		}
	}
	m.Norm = make([]float32, c.Hidden)
	if err := src.Floats(m.Norm, "model.norm.weight"); err != nil {
		return err
	}
	for l := 0; layers && l < c.Layers; l++ {
		var err error
		if m.Layers[l], err = LoadLayer(c, src, l, alloc); err != nil {
			return err
		}
	}
	return nil
}

// ResidentBytes is the size of what Load reads with layers: float16 matrices, float32 norms and biases.
func ResidentBytes(c *checkpoint.Config) int64 {
	h, q, k := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	layer := 2*(2*q*h+2*k*h) + 4*2*h
	if c.QKVBias {
		layer += 4 * (q + 2*k)
	}
	heads := int64(2)
	if c.Tied {
		heads = 1
	}
	return heads*2*int64(c.Vocab)*h + 4*h + int64(c.Layers)*layer
}

// LoadLayer reads the resident part of one layer.
func LoadLayer(c *checkpoint.Config, src Source, layer int, alloc Alloc) (*Layer, error) {
	h, q, k := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	l := &Layer{AttnNorm: make([]float32, h), MLPNorm: make([]float32, h)}
	p := fmt.Sprintf("model.layers.%d.", layer)
	for _, w := range []struct {
		dst  *[]uint16
		name string
		n    int
	}{
		{&l.Q, "self_attn.q_proj.weight", q * h}, {&l.K, "self_attn.k_proj.weight", k * h},
		{&l.V, "self_attn.v_proj.weight", k * h}, {&l.O, "self_attn.o_proj.weight", h * q},
	} {
		*w.dst = alloc.halves(w.n)
		if err := src.Halves(*w.dst, p+w.name); err != nil {
			return nil, err
		}
	}
	floats := []struct {
		dst  *[]float32
		name string
		n    int
	}{{&l.AttnNorm, "input_layernorm.weight", h}, {&l.MLPNorm, "post_attention_layernorm.weight", h}}
	if c.QKVBias {
		floats = append(floats, []struct {
			dst  *[]float32
			name string
			n    int
		}{{&l.QB, "self_attn.q_proj.bias", q}, {&l.KB, "self_attn.k_proj.bias", k}, {&l.VB, "self_attn.v_proj.bias", k}}...)
	}
	for _, f := range floats {
		*f.dst = make([]float32, f.n)
		if err := src.Floats(*f.dst, p+f.name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// LoadRows reads the three MLP matrices of one layer of a checkpoint as records without trailers: gate row, up row,
// transposed down column, 3·H elements each. mem is used when it is large enough.
func LoadRows(c *checkpoint.Config, src Source, layer int, mem []uint16) (Rows, error) {
	h, n := c.Hidden, c.Intermediate
	stride := 3 * h
	if len(mem) < n*stride {
		mem = make([]uint16, n*stride)
	}
	p := fmt.Sprintf("model.layers.%d.mlp.", layer)
	buf := make([]uint16, n*h)
	for i, name := range []string{"gate_proj.weight", "up_proj.weight"} {
		if err := src.Halves(buf, p+name); err != nil {
			return Rows{}, err
		}
		for r := range n {
			copy(mem[r*stride+i*h:][:h], buf[r*h:])
		}
	}
	if err := src.Halves(buf, p+"down_proj.weight"); err != nil {
		return Rows{}, err
	}
	transposeInto(mem[2*h:], stride, buf, h, n)
	return Rows{Mem: mem, Stride: stride, N: n}, nil
}

// transposeInto writes src (rows, cols) to dst so that dst[c*stride+r] = src[r, c], in tiles that stay in the cache.
func transposeInto(dst []uint16, stride int, src []uint16, rows, cols int) {
	const tile = 32
	for c0 := 0; c0 < cols; c0 += tile {
		for r0 := 0; r0 < rows; r0 += tile {
			for c := c0; c < min(c0+tile, cols); c++ {
				for r := r0; r < min(r0+tile, rows); r++ {
					dst[c*stride+r] = src[r*cols+c]
				}
			}
		}
	}
}

// CheckpointSource reads a Hugging Face checkpoint. Values that float16 cannot hold are refused; Underflow counts those
// that it holds less exactly because they are small.
type CheckpointSource struct {
	C         *checkpoint.Checkpoint
	Underflow map[string]int64 // by tensor
}

// pieceValues is how many values are converted at a time.
const pieceValues = 1 << 16

// Has reports whether the checkpoint stores the tensor.
func (s *CheckpointSource) Has(name string) bool {
	_, _, err := s.C.Tensor(name)
	return err == nil
}

// Halves converts a tensor to float16, rounding to nearest, ties to even.
func (s *CheckpointSource) Halves(dst []uint16, name string) error {
	c, err := s.convert(name, len(dst), func(c *Converter, src []byte, at, n int) error {
		return c.F16(dst[at:at+n], src, int64(at))
	})
	if err == nil && c.Underflow > 0 {
		if s.Underflow == nil {
			s.Underflow = map[string]int64{}
		}
		s.Underflow[name] = c.Underflow
	}
	return err
}

// Floats converts a tensor to float32, exactly.
func (s *CheckpointSource) Floats(dst []float32, name string) error {
	_, err := s.convert(name, len(dst), func(c *Converter, src []byte, at, n int) error {
		x, err := c.F32(src, n, int64(at))
		copy(dst[at:], x)
		return err
	})
	return err
}

// convert calls f for the pieces of a tensor of want values.
func (s *CheckpointSource) convert(name string, want int, f func(c *Converter, src []byte, at, n int) error) (*Converter, error) {
	info, b, err := s.C.Tensor(name)
	if err != nil {
		return nil, err
	}
	c, err := NewConverter(s.C.Path(name), info)
	if err != nil {
		return nil, err
	}
	if len(b) != want*c.Size {
		return nil, format.Inputf("%s: tensor %s holds %d values, the configuration needs %d", s.C.Path(name), name, len(b)/c.Size, want)
	}
	for at := 0; at < want; at += pieceValues {
		n := min(pieceValues, want-at)
		if err := f(c, b[at*c.Size:], at, n); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// FileSource reads float16 matrices and float32 vectors of a bundle's resident.safetensors straight into their place,
// without a mapping, so that loading holds every byte once.
type FileSource struct {
	T *tensors.File
	F *os.File // the same file
}

// Has reports whether the file stores the tensor.
func (s *FileSource) Has(name string) bool {
	_, ok := s.T.Info(name)
	return ok
}

// Halves reads an F16 tensor.
func (s *FileSource) Halves(dst []uint16, name string) error {
	return s.read(kernels.U16Bytes(dst), name, "F16")
}

// Floats reads an F32 tensor.
func (s *FileSource) Floats(dst []float32, name string) error {
	return s.read(kernels.F32Bytes(dst), name, "F32")
}

func (s *FileSource) read(dst []byte, name, dtype string) error {
	info, ok := s.T.Info(name)
	switch {
	case !ok:
		return format.Corruptf("%s: tensor %s is missing", s.T.Path(), name)
	case info.DType != dtype:
		return format.Corruptf("%s: tensor %s has dtype %s, want %s", s.T.Path(), name, info.DType, dtype)
	case info.End-info.Begin != int64(len(dst)):
		return format.Corruptf("%s: tensor %s has %d bytes, want %d", s.T.Path(), name, info.End-info.Begin, len(dst))
	}
	if _, err := io.ReadFull(io.NewSectionReader(s.F, info.Begin, int64(len(dst))), dst); err != nil {
		return format.IOf("%s: tensor %s at offset %d: %w", s.T.Path(), name, info.Begin, err)
	}
	return nil
}
