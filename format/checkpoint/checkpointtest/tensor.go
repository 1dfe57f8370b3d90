package checkpointtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/x448/float16"
)

// Tensor is one tensor to be written. Data may be of any length and DType any string: wrong files are wanted too.
type Tensor struct {
	Name, DType string
	Shape       []int
	Data        []byte
}

// NewTensor encodes values as F32, F16 or BF16, rounded to nearest even.
func NewTensor(name, dtype string, shape []int, vals []float32) Tensor {
	t := Tensor{Name: name, DType: dtype, Shape: shape, Data: make([]byte, len(vals)*size(dtype))}
	for i, v := range vals {
		t.Set(i, v)
	}
	return t
}

func size(dtype string) int {
	switch dtype {
	case "F32":
		return 4
	case "F16", "BF16":
		return 2
	}
	panic("checkpointtest: dtype " + dtype)
}

// Set changes element i.
func (t *Tensor) Set(i int, v float32) {
	switch t.DType {
	case "F32":
		binary.LittleEndian.PutUint32(t.Data[4*i:], math.Float32bits(v))
	case "F16":
		binary.LittleEndian.PutUint16(t.Data[2*i:], float16.Fromfloat32(v).Bits())
	case "BF16":
		binary.LittleEndian.PutUint16(t.Data[2*i:], BF16(v))
	}
}

// SetBits changes the 16 bits of element i of an F16 or BF16 tensor.
func (t *Tensor) SetBits(i int, b uint16) { binary.LittleEndian.PutUint16(t.Data[2*i:], b) }

// At is element i.
func (t *Tensor) At(i int) float32 {
	switch t.DType {
	case "F32":
		return math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	case "F16":
		return float16.Frombits(binary.LittleEndian.Uint16(t.Data[2*i:])).Float32()
	}
	return BF16Value(binary.LittleEndian.Uint16(t.Data[2*i:]))
}

// Values are all elements.
func (t *Tensor) Values() []float32 {
	out := make([]float32, len(t.Data)/size(t.DType))
	for i := range out {
		out[i] = t.At(i)
	}
	return out
}

// Convert is the tensor with the same values in another dtype.
func (t *Tensor) Convert(dtype string) Tensor { return NewTensor(t.Name, dtype, t.Shape, t.Values()) }

// Find is the tensor of that name, to be changed in place; it panics if there is none.
func Find(ts []Tensor, name string) *Tensor {
	for i := range ts {
		if ts[i].Name == name {
			return &ts[i]
		}
	}
	panic("checkpointtest: no tensor " + name)
}

// Without leaves out the tensors of that name.
func Without(ts []Tensor, name string) []Tensor {
	var out []Tensor
	for _, t := range ts {
		if t.Name != name {
			out = append(out, t)
		}
	}
	return out
}

// Rig makes the greedy output always the given token: one component of the hidden state is large for every token, and
// only that token's row of the head looks at it. Not for tied models.
func Rig(ts []Tensor, id int) {
	emb, head := Find(ts, "model.embed_tokens.weight"), Find(ts, "lm_head.weight")
	h := emb.Shape[1]
	for i := range emb.Shape[0] {
		emb.Set(i*h, 64)
	}
	for i := range head.Shape[0] {
		head.Set(i*h, 0)
	}
	head.Set(id*h, 64)
}

// Chain makes the greedy output after ids[i] the token ids[i+1], whatever came before: layers add nothing, and the head's
// row of a token is the embedding of the one before it. Ids must differ, except that the last may be one of the others.
// Not for tied models.
func Chain(ts []Tensor, ids ...int) {
	emb, head := Find(ts, "model.embed_tokens.weight"), Find(ts, "lm_head.weight")
	h := emb.Shape[1]
	for _, t := range ts {
		if strings.HasSuffix(t.Name, "o_proj.weight") || strings.HasSuffix(t.Name, "down_proj.weight") {
			clear(t.Data)
		}
	}
	clear(head.Data)
	for i := 1; i < len(ids); i++ {
		for j := range h {
			at := ids[i]*h + j
			head.Set(at, head.At(at)+8*emb.At(ids[i-1]*h+j))
		}
	}
}

// ST is a safetensors file with exactly this header and payload.
func ST(header string, payload []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), payload...)
}

// Encode is a safetensors file of the tensors, in order, without padding.
func Encode(ts []Tensor) []byte {
	var b strings.Builder
	var payload []byte
	b.WriteString("{")
	for i, t := range ts {
		if i > 0 {
			b.WriteString(",")
		}
		shape := strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",")
		fmt.Fprintf(&b, "%q:{\"dtype\":%q,\"shape\":%s,\"data_offsets\":[%d,%d]}", t.Name, t.DType, shape, len(payload), len(payload)+len(t.Data))
		payload = append(payload, t.Data...)
	}
	b.WriteString("}")
	return ST(b.String(), payload)
}

// BF16 rounds to nearest even.
func BF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// BF16Value is the value of a BF16 bit pattern.
func BF16Value(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
