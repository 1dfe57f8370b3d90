package repack

import (
	"encoding/binary"
	"fmt"
	"sync"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// stripBytes is about how many bytes of records are put together at once. A variable for tests only.
var stripBytes = 32 << 20

// block is how many rows of down_proj are transposed at once: 32 float16 values of one record are a cache line.
const block = 32

// stripNeurons is how many records are put together at once.
func stripNeurons(g bundle.Geometry) int { return min(g.Neurons, max(1, stripBytes/g.Stride)) }

// checkMemory refuses what cannot work within the limit: one layer's three matrices stay mapped while it is
// repacked, beside one strip of records.
func checkMemory(limit int64, c *checkpoint.Checkpoint, g bundle.Geometry) error {
	if limit <= 0 {
		return nil
	}
	var layer int64
	for _, n := range mlpNames(0) {
		info, _, err := c.Tensor(n)
		if err != nil {
			return err
		}
		layer += info.End - info.Begin
	}
	strip := int64(stripNeurons(g)) * int64(g.Stride)
	const other = 64 << 20 // program, garbage, resident pieces
	if need := layer + strip + other; need > limit {
		return format.Hint(format.Fitf("repack: %s for one layer's weights + %s of records + %s for the program = %s, more than the limit of %s",
			format.IEC(layer), format.IEC(strip), format.IEC(other), format.IEC(need), format.IEC(limit)), "raise --memory")
	}
	return nil
}

func mlpNames(l int) [3]string {
	pre := fmt.Sprintf("model.layers.%d.mlp.", l)
	return [3]string{pre + "gate_proj.weight", pre + "up_proj.weight", pre + "down_proj.weight"}
}

// layer writes one layer's records and notes it as finished.
func (r *repacker) layer(w *bundle.RowsWriter, l int) (unit, error) {
	names := mlpNames(l)
	var conv [3]*model.Converter
	var data [3][]byte
	for i, n := range names {
		info, b, err := r.c.Tensor(n)
		if err != nil {
			return unit{}, err
		}
		if conv[i], err = model.NewConverter(r.c.Path(info.Name), info); err != nil {
			return unit{}, err
		}
		data[i] = b
		defer r.c.Release(n) // its pages would otherwise count as ours to the end
	}
	if err := w.BeginLayer(l); err != nil {
		return unit{}, err
	}
	t := &transposer{g: r.g, conv: conv, data: data}
	if r.strip == nil {
		r.strip = make([]byte, stripNeurons(r.g)*r.g.Stride)
	}
	for lo := 0; lo < r.g.Neurons; lo += stripNeurons(r.g) {
		if err := r.ctx.Err(); err != nil {
			return unit{}, err
		}
		hi := min(lo+stripNeurons(r.g), r.g.Neurons)
		recs := r.strip[:(hi-lo)*r.g.Stride]
		if err := t.fill(r.e.Pool, recs, lo, hi); err != nil {
			return unit{}, err
		}
		if err := w.PutRecords(recs); err != nil {
			return unit{}, err
		}
	}
	crc, err := w.EndLayer()
	if err != nil {
		return unit{}, err
	}
	u := unit{CRC: crc, Underflow: t.underflow}
	return u, r.writeUnit(layerUnit(l), u)
}

// transposer builds records of one layer from its gate_proj (M, H), up_proj (M, H) and down_proj (H, M).
type transposer struct {
	g    bundle.Geometry
	conv [3]*model.Converter
	data [3][]byte

	mu        sync.Mutex
	underflow int64
	failed    error // of the lowest element, so that the message does not depend on threads
	failedAt  int64
}

func (t *transposer) note(c *model.Converter, err error, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underflow += c.Underflow
	if err != nil && (t.failed == nil || at < t.failedAt) {
		t.failed, t.failedAt = err, at
	}
}

// fill puts the rows of neurons lo..hi into recs.
func (t *transposer) fill(pool *kernels.Pool, recs []byte, lo, hi int) error {
	h, m, stride := t.g.Hidden, t.g.Neurons, t.g.Stride
	pool.Run(hi-lo, 16, func(a, b int) {
		for i := range 2 {
			c := t.conv[i].Clone()
			row := make([]uint16, h)
			for n := a; n < b; n++ {
				at := int64(lo+n) * int64(h)
				src := t.data[i][at*int64(c.Size):][:h*c.Size]
				if err := c.F16(row, src, at); err != nil {
					t.note(c, err, int64(i)*int64(h)*int64(m)+at)
					return
				}
				copy(recs[n*stride+i*2*h:], kernels.U16Bytes(row))
			}
			t.note(c, nil, 0)
		}
	})
	pool.Run(h, block, func(a, b int) {
		c := t.conv[2].Clone()
		width := hi - lo
		rows := make([]uint16, block*width) // (block, width)
		for h0 := a; h0 < b; h0 += block {
			k := min(block, b-h0)
			for j := range k {
				at := int64(h0+j)*int64(m) + int64(lo)
				src := t.data[2][at*int64(c.Size):][:width*c.Size]
				if err := c.F16(rows[j*width:][:width], src, at); err != nil {
					t.note(c, err, 2*int64(h)*int64(m)+at)
					return
				}
			}
			for n := range width {
				dst := recs[n*stride+4*h+2*h0:]
				for j := range k {
					binary.LittleEndian.PutUint16(dst[2*j:], rows[j*width+n])
				}
			}
		}
		t.note(c, nil, 0)
	})
	return t.failed
}
