package exporter

import (
	"encoding/binary"
	"io"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
)

// pieceBytes is about how much is read or written at once.
const pieceBytes = 4 << 20

// downBytes bounds the block of transposed rows in memory. A layer is read once for every block: from the page cache after the first time, where there is room.
var downBytes = 64 << 20 // a variable for tests

// records calls f with the records of a layer, neurons ascending, some at a time. f must not keep them.
func (e *exporter) records(layer int, f func(first, n int, recs []uint16) error) error {
	g := e.g
	per := max(1, pieceBytes/g.Stride)
	buf := make([]uint16, min(per, g.Neurons)*g.Stride/2)
	crcs := make([]byte, min(per, g.Neurons)*4)
	for first := 0; first < g.Neurons; first += per {
		n := min(per, g.Neurons-first)
		recs := kernels.U16Bytes(buf)[:n*g.Stride]
		if _, err := e.rows.ReadAt(recs, g.RecordOffset(layer, first)); err != nil {
			return format.IOf("%s: layer %d, neuron %d: %w", e.rows.Name(), layer, first, err)
		}
		if e.side != nil {
			if _, err := e.side.ReadAt(crcs[:4*n], 4*int64(layer*g.Neurons+first)); err != nil {
				return format.IOf("%s: layer %d, neuron %d: %w", e.side.Name(), layer, first, err)
			}
		}
		for i := range n {
			rec := recs[i*g.Stride:][:g.Stride]
			err := bundle.CheckRecord(g, layer, first+i, rec)
			if e.side != nil {
				err = bundle.CheckRecordCRC(g, layer, first+i, rec, binary.LittleEndian.Uint32(crcs[4*i:]))
			}
			if err != nil {
				return e.b.In(err)
			}
		}
		if err := f(first, n, buf[:n*g.Stride/2]); err != nil {
			return err
		}
	}
	return nil
}

// matrixRows writes the gate (part 0) or up (part 1) matrix of a layer, (M, H).
func (e *exporter) matrixRows(w io.Writer, layer, part int) error {
	h, stride := e.g.Hidden, e.g.Stride/2
	var out []uint16
	return e.records(layer, func(_, n int, recs []uint16) error {
		out = out[:0]
		for i := range n {
			out = append(out, recs[i*stride+part*h:][:h]...)
		}
		return e.put(w, kernels.U16Bytes(out))
	})
}

// down writes the down matrix of a layer, (H, M): the records hold its columns.
func (e *exporter) down(w io.Writer, layer int) error {
	h, m, stride := e.g.Hidden, e.g.Neurons, e.g.Stride/2
	block := min(h, max(1, downBytes/(2*m)))
	out := make([]uint16, block*m)
	for lo := 0; lo < h; lo += block {
		hi := min(lo+block, h)
		err := e.records(layer, func(first, n int, recs []uint16) error {
			// A group of neurons, a cache line of each: what was fetched is used before it goes.
			const group, line = 64, 32
			for a := 0; a < n; a += group {
				b := min(a+group, n)
				for r := lo; r < hi; r += line {
					for row := r; row < min(r+line, hi); row++ {
						dst := out[(row-lo)*m+first : (row-lo)*m+first+n]
						at := a*stride + 2*h + row
						for i := a; i < b; i++ {
							dst[i] = recs[at]
							at += stride
						}
					}
				}
			}
			return e.ctx.Err()
		})
		if err != nil {
			return err
		}
		bytes := kernels.U16Bytes(out[:(hi-lo)*m])
		for len(bytes) > 0 {
			n := min(len(bytes), pieceBytes)
			if err := e.put(w, bytes[:n]); err != nil {
				return err
			}
			bytes = bytes[n:]
		}
	}
	return nil
}
