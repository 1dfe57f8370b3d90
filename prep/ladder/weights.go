package ladder

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// weights are a bundle's: what stays resident on a device, and every layer's records, which are kept where the budget
// has room and else read when they are asked for.
type weights struct {
	b     *bundle.Bundle
	c     *checkpoint.Config
	m     *model.Model
	rows  []model.Rows // per layer; N = 0: not in memory
	norms [][]float64  // per layer ‖down‖₂ (M), nil before the layer was read
	keep  bool
	file  *os.File
	crc   []uint32 // per record, where records have no trailer
	buf   []byte
}

// layerBytes is what one layer's records take in memory.
func layerBytes(g bundle.Geometry) int64 { return int64(g.Neurons) * int64(g.RowBytes) }

// loadWeights reads the bundle's weights and compares them with their checksums. room is for the layers' records.
func loadWeights(ctx context.Context, b *bundle.Bundle, pool *kernels.Pool, room int64) (w *weights, err error) {
	w = &weights{b: b, c: &b.Manifest.Model, keep: int64(b.Manifest.Rows.Layers)*layerBytes(b.Manifest.Rows) <= room}
	w.rows, w.norms = make([]model.Rows, w.c.Layers), make([][]float64, w.c.Layers)
	if err := b.VerifyMember(ctx, bundle.MemberResident); err != nil {
		return nil, err
	}
	w.m = model.New(w.c, pool)
	t, err := tensors.Open(b.Path(bundle.MemberResident))
	if err != nil {
		return nil, err
	}
	defer t.Close()
	f, err := os.Open(t.Path())
	if err != nil {
		return nil, format.IOf("%w", err)
	}
	defer f.Close()
	if err := w.m.Load(&model.FileSource{T: t, F: f}, nil, true); err != nil {
		return nil, err
	}
	if g := b.Manifest.Rows; !g.Trailer {
		if err := b.VerifyMember(ctx, bundle.MemberRowsCRC); err != nil {
			return nil, err
		}
		raw, err := format.ReadFile(b.Path(bundle.MemberRowsCRC), int64(4*g.Layers*g.Neurons))
		if err != nil {
			return nil, err
		}
		w.crc = make([]uint32, len(raw)/4)
		for i := range w.crc {
			w.crc[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
	}
	if w.file, err = os.Open(b.Path(bundle.MemberRows)); err != nil {
		return nil, format.IOf("%w", err)
	}
	return w, nil
}

func (w *weights) close() { w.file.Close() }

// layer gives a layer's records; without room for all, those of the call before are overwritten.
func (w *weights) layer(l int) (model.Rows, error) {
	if w.rows[l].N > 0 {
		return w.rows[l], nil
	}
	g := w.b.Manifest.Rows
	if w.buf == nil {
		w.buf = make([]byte, 256*g.Stride)
	}
	row := g.RowBytes / 2
	rows := model.Rows{Stride: row, N: g.Neurons}
	for i := range w.rows { // the one block when layers are not kept
		if !w.keep && w.rows[i].N > 0 {
			rows.Mem, w.rows[i] = w.rows[i].Mem, model.Rows{}
		}
	}
	if rows.Mem == nil {
		rows.Mem = make([]uint16, g.Neurons*row)
	}
	for first := 0; first < g.Neurons; first += 256 {
		n := min(256, g.Neurons-first)
		part, at := w.buf[:n*g.Stride], g.RecordOffset(l, first)
		if _, err := io.ReadFull(io.NewSectionReader(w.file, at, int64(len(part))), part); err != nil {
			return rows, format.IOf("%s: layer %d at offset %d: %w", w.file.Name(), l, at, err)
		}
		for i := range n {
			rec := part[i*g.Stride : (i+1)*g.Stride]
			var err error
			if g.Trailer {
				err = bundle.CheckRecord(g, l, first+i, rec)
			} else {
				err = bundle.CheckRecordCRC(g, l, first+i, rec, w.crc[l*g.Neurons+first+i])
			}
			if err != nil {
				return rows, w.b.In(err)
			}
			copy(kernels.U16Bytes(rows.Mem[(first+i)*row:(first+i+1)*row]), rec)
		}
	}
	w.rows[l] = rows
	if w.norms[l] == nil {
		h := g.Hidden
		w.norms[l] = make([]float64, g.Neurons)
		w.m.Pool.Run(g.Neurons, 64, func(lo, hi int) {
			down := make([]float32, h)
			for n := lo; n < hi; n++ {
				kernels.F16ToF32(down, rows.Mem[n*row+2*h:][:h])
				w.norms[l][n] = math.Sqrt(float64(kernels.DotF32(down, down)))
			}
		})
	}
	return rows, nil
}
