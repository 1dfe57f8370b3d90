package repack

import (
	"io"
	"strings"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// pieceElems is how many elements of a resident tensor are converted at once.
const pieceElems = 1 << 18

// entry describes a tensor of resident.safetensors: matrices as float16, norms and biases as float32. Its bytes
// are converted while they are written.
func (r *repacker) entry(name string, underflow *int64) (tensors.Entry, error) {
	info, _, err := r.c.Tensor(name)
	if err != nil {
		return tensors.Entry{}, err
	}
	if _, err := model.NewConverter(r.c.Path(info.Name), info); err != nil {
		return tensors.Entry{}, err // before anything is written
	}
	vector := len(info.Shape) == 1 || strings.HasSuffix(name, ".bias")
	ent := tensors.Entry{Name: name, DType: "F16", Shape: info.Shape}
	if vector {
		ent.DType = "F32"
	}
	ent.Write = func(w io.Writer) error {
		_, data, err := r.c.Tensor(name)
		if err != nil {
			return err
		}
		c, err := model.NewConverter(r.c.Path(info.Name), info) // its scratch must not outlive this tensor
		if err != nil {
			return err
		}
		defer r.c.Release(name)
		elems := int64(len(data) / c.Size)
		out := make([]uint16, min(elems, pieceElems))
		for at := int64(0); at < elems; at += pieceElems {
			n := int(min(elems-at, pieceElems))
			src := data[at*int64(c.Size):][:n*c.Size]
			var b []byte
			if vector {
				x, err := c.F32(src, n, at)
				if err != nil {
					return err
				}
				b = kernels.F32Bytes(x)
			} else {
				if err := c.F16(out[:n], src, at); err != nil {
					return err
				}
				b = kernels.U16Bytes(out[:n])
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
			r.p.Add(int64(len(src)))
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
		*underflow += c.Underflow
		return nil
	}
	return ent, nil
}
