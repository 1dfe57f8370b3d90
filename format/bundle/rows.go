package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// RowsWriter writes rows.np layer by layer, records in ascending order, and can go on where an interrupted run
// stopped: the caller notes the checksum that EndLayer returns, and gives it to Resume the next time. Nothing
// is trusted that was not read back. The header page comes last, so a file that was left early has none.
//
// One goroutine uses it. After the first error every method returns that error.
type RowsWriter struct {
	path string
	g    Geometry
	f    *os.File
	err  error

	layer int    // being written; −1 between layers
	next  int    // the record that is due
	crc   uint32 // of the layer's record checksums so far
	done  []bool
	crcs  []uint32   // per layer
	side  [][]uint32 // per layer, per record; only without trailers
	sides []byte     // scratch
}

// OpenRows opens the partial file at path, or makes it, and checks that the file system has room for the rest.
func OpenRows(path string, g Geometry) (*RowsWriter, error) {
	if err := g.Check(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, format.IOf("%w", err)
	}
	w := &RowsWriter{path: path, g: g, f: f, layer: -1, done: make([]bool, g.Layers), crcs: make([]uint32, g.Layers)}
	if !g.Trailer {
		w.side = make([][]uint32, g.Layers)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, w.fail(err)
	}
	if err := format.CheckSpace(filepath.Dir(path), g.FileSize()-st.Blocks*512); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// fail remembers the first error; ENOSPC says how much was wanted and is left.
func (w *RowsWriter) fail(err error) error {
	if w.err == nil {
		w.err = spaceError(w.path, w.g.FileSize(), err)
	}
	return w.err
}

// spaceError gives a failed write its kind, and numbers where the disk is full.
func spaceError(path string, want int64, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		free, ferr := format.FreeSpace(filepath.Dir(path))
		avail := format.IEC(free)
		if ferr != nil {
			avail = "unknown"
		}
		return format.Hint(format.IOf("%s: no space: %s wanted, %s available: %w", path, format.IEC(want), avail, err), format.MakeSpace)
	}
	return format.IOf("%s: write: %w", path, err)
}

// Resume reads layer's block back. It reports whether it is whole and has the checksum that was noted.
func (w *RowsWriter) Resume(layer int, crc uint32) (bool, error) {
	if w.err != nil {
		return false, w.err
	}
	var got uint32
	var side []uint32
	var buf []byte
	err := eachPiece(w.g, layer, func(off int64, first, n, size int) error {
		if cap(buf) < size {
			buf = make([]byte, size)
		}
		b := buf[:size]
		if _, err := w.f.ReadAt(b, off); err != nil {
			return err
		}
		if n == 0 && nonZero(b) >= 0 {
			return format.Corruptf("layer %d: padding", layer)
		}
		for i := range n {
			rec := b[i*w.g.Stride:][:w.g.Stride]
			if err := CheckRecord(w.g, layer, first+i, rec); err != nil {
				return err
			}
			crc := recordCRC(w.g, rec)
			got = addCRC(got, crc)
			if w.side != nil {
				side = append(side, crc)
			}
		}
		return nil
	})
	if errors.Is(err, io.EOF) || errors.Is(err, format.ErrCorrupt) || err == nil && got != crc {
		return false, nil
	}
	if err != nil {
		return false, w.fail(err)
	}
	w.done[layer], w.crcs[layer] = true, crc
	if w.side != nil {
		w.side[layer] = side
	}
	return true, nil
}

// BeginLayer starts a layer's block.
func (w *RowsWriter) BeginLayer(layer int) error {
	if w.err != nil {
		return w.err
	}
	if w.layer >= 0 || layer < 0 || layer >= w.g.Layers {
		return w.fail(fmt.Errorf("layer %d begun out of turn", layer))
	}
	w.layer, w.next, w.crc, w.done[layer] = layer, 0, 0, false
	if w.side != nil {
		w.side[layer] = make([]uint32, 0, w.g.Neurons)
	}
	return nil
}

// PutRecords finishes and writes records whose rows are in place, the next ones of the layer in order: it
// fills in padding and trailers. len(recs) is a multiple of the stride; recs may be used again afterwards.
func (w *RowsWriter) PutRecords(recs []byte) error {
	if w.err != nil {
		return w.err
	}
	n := len(recs) / w.g.Stride
	if w.layer < 0 || n*w.g.Stride != len(recs) || w.next+n > w.g.Neurons {
		return w.fail(fmt.Errorf("layer %d: %d bytes of records behind record %d", w.layer, len(recs), w.next))
	}
	for i := range n {
		crc := PutRecordTrailer(w.g, w.layer, w.next+i, recs[i*w.g.Stride:])
		w.crc = addCRC(w.crc, crc)
		if w.side != nil {
			w.side[w.layer] = append(w.side[w.layer], crc)
		}
	}
	if _, err := w.f.WriteAt(recs, w.g.RecordOffset(w.layer, w.next)); err != nil {
		return w.fail(err)
	}
	w.next += n
	return nil
}

// EndLayer pads the block, makes it durable and returns the layer's checksum.
func (w *RowsWriter) EndLayer() (uint32, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.layer < 0 || w.next != w.g.Neurons {
		return 0, w.fail(fmt.Errorf("layer %d ended after %d of %d records", w.layer, w.next, w.g.Neurons))
	}
	if pad := w.g.LayerStride - w.g.LayerBytes(); pad > 0 {
		b := make([]byte, pad)
		if _, err := w.f.WriteAt(b, w.g.LayerOffset(w.layer)+w.g.LayerBytes()); err != nil {
			return 0, w.fail(err)
		}
	}
	if err := w.f.Sync(); err != nil {
		return 0, w.fail(err)
	}
	w.crcs[w.layer], w.done[w.layer] = w.crc, true
	w.layer = -1
	return w.crc, nil
}

// Finish writes the header page and, without trailers, the side table at sidePath, and closes. It returns the
// checksums of the layers. The caller renames the file to its final name.
func (w *RowsWriter) Finish(sidePath string) ([]uint32, error) {
	if w.err != nil {
		return nil, w.err
	}
	for l, ok := range w.done {
		if !ok {
			return nil, w.fail(fmt.Errorf("layer %d was not written", l))
		}
	}
	page := make([]byte, w.g.DataOffset)
	copy(page, Header{ReaderVersion, WriterVersion, w.g}.Encode())
	if _, err := w.f.WriteAt(page, 0); err != nil {
		return nil, w.fail(err)
	}
	if err := w.f.Truncate(w.g.FileSize()); err != nil {
		return nil, w.fail(err)
	}
	if err := w.f.Sync(); err != nil {
		return nil, w.fail(err)
	}
	if w.side != nil {
		size := int64(w.g.Layers) * int64(w.g.Neurons) * 4
		err := format.WriteFileAtomicSize(sidePath, size, func(out io.Writer) error {
			for _, layer := range w.side {
				w.sides = w.sides[:0]
				for _, c := range layer {
					w.sides = binary.LittleEndian.AppendUint32(w.sides, c)
				}
				if _, err := out.Write(w.sides); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.err = err
			return nil, err
		}
	}
	if err := w.f.Close(); err != nil {
		return nil, w.fail(err)
	}
	w.f, w.err = nil, errors.New("rows are finished")
	return w.crcs, nil
}

// Close leaves the file as it is. It may be called after Finish.
func (w *RowsWriter) Close() error {
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	if err != nil {
		return w.fail(err)
	}
	return nil
}

// chunkBytes is about how much of rows.np is read at once.
const chunkBytes = 4 << 20

// eachPiece walks a layer's block in pieces of whole records; the padding behind the records comes last, with
// n = 0.
func eachPiece(g Geometry, layer int, f func(off int64, first, n, size int) error) error {
	per := max(1, chunkBytes/g.Stride)
	for first := 0; first < g.Neurons; first += per {
		n := min(per, g.Neurons-first)
		if err := f(g.RecordOffset(layer, first), first, n, n*g.Stride); err != nil {
			return err
		}
	}
	for off := g.LayerBytes(); off < g.LayerStride; off += chunkBytes {
		n := min(g.LayerStride-off, chunkBytes)
		if err := f(g.LayerOffset(layer)+off, g.Neurons, 0, int(n)); err != nil {
			return err
		}
	}
	return nil
}
