package bundle

import (
	"math"

	"neuroprefetcher/format"
)

// HeaderSize is the length of the first page of rows.np, and the alignment of everything behind it.
const HeaderSize = 4096

// TrailerSize is the length of a record's trailer: the last bytes of its stride.
const TrailerSize = 16

// DTypeF16 names the only element type of version 1.
const DTypeF16 = "f16"

// Geometry says where records lie. It is written once, in the header page of rows.np and in the manifest, and
// everybody reads it from there.
type Geometry struct {
	DType       string `json:"dtype"`
	Hidden      int    `json:"hidden"`       // H
	Neurons     int    `json:"neurons"`      // M, records of a layer
	Layers      int    `json:"layers"`       // N
	RowBytes    int    `json:"row_bytes"`    // gate row, up row and down column of one neuron
	Stride      int    `json:"stride"`       // from one record to the next
	Align       int    `json:"align"`        // every record starts on a multiple of it
	Trailer     bool   `json:"trailer"`      // records end in a trailer; else their checksums are in rows.crc
	DataOffset  int64  `json:"data_offset"`  // first byte of layer 0
	LayerStride int64  `json:"layer_stride"` // from one layer to the next
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// NewGeometry lays out float16 records. recordAlign 0 ends each record in a trailer and rounds it up to 512
// bytes; any other value (4096) keeps the checksums in rows.crc and rounds the bare rows up to it.
func NewGeometry(hidden, neurons, layers, recordAlign int) Geometry {
	g := Geometry{DType: DTypeF16, Hidden: hidden, Neurons: neurons, Layers: layers, RowBytes: 3 * hidden * 2}
	if recordAlign == 0 {
		g.Trailer, g.Align = true, 512
		g.Stride = int(roundUp(int64(g.RowBytes)+TrailerSize, 512))
	} else {
		g.Align = recordAlign
		g.Stride = int(roundUp(int64(g.RowBytes), int64(recordAlign)))
	}
	page := int64(max(HeaderSize, g.Align))
	g.DataOffset = page
	g.LayerStride = roundUp(g.LayerBytes(), page)
	return g
}

// RecordOffset is the place of a record in rows.np.
func (g Geometry) RecordOffset(layer, neuron int) int64 {
	return g.LayerOffset(layer) + int64(neuron)*int64(g.Stride)
}

// LayerOffset is the place of a layer's first record in rows.np.
func (g Geometry) LayerOffset(layer int) int64 { return g.DataOffset + int64(layer)*g.LayerStride }

// LayerBytes is the length of a layer's records without the padding behind them.
func (g Geometry) LayerBytes() int64 { return int64(g.Neurons) * int64(g.Stride) }

// FileSize is the length of rows.np.
func (g Geometry) FileSize() int64 { return g.DataOffset + int64(g.Layers)*g.LayerStride }

// Check refuses a geometry that no writer of a known version makes or that would overflow. what names the
// file for the message.
func (g Geometry) Check(what string) error {
	bad := func(f string, a ...any) error {
		return format.Corruptf("%s: geometry: "+f, append([]any{what}, a...)...)
	}
	switch {
	case g.DType != DTypeF16:
		return format.Inputf("%s: geometry: records of type %.20q are not supported by this version (want %q)", what, g.DType, DTypeF16)
	case g.Hidden < 1 || g.Hidden > MaxHidden:
		return bad("hidden size %d is not in 1..%d", g.Hidden, MaxHidden)
	case g.Neurons < 1 || g.Neurons > MaxNeurons:
		return bad("%d neurons per layer is not in 1..%d", g.Neurons, MaxNeurons)
	case g.Layers < 1 || g.Layers > MaxLayers:
		return bad("%d layers is not in 1..%d", g.Layers, MaxLayers)
	case g.RowBytes != 3*g.Hidden*2:
		return bad("row bytes %d, want %d for hidden size %d", g.RowBytes, 3*g.Hidden*2, g.Hidden)
	case g.Align < 512 || g.Align > MaxAlign || g.Align&(g.Align-1) != 0:
		return bad("alignment %d is not a power of two in 512..%d", g.Align, MaxAlign)
	case g.Stride > MaxStride || g.Stride%g.Align != 0 || g.Stride < g.RowBytes || g.Trailer && g.Stride < g.RowBytes+TrailerSize:
		return bad("stride %d does not hold %d bytes of rows on multiples of %d", g.Stride, g.RowBytes, g.Align)
	case g.DataOffset < HeaderSize || g.DataOffset > MaxAlign || g.DataOffset%HeaderSize != 0 || g.DataOffset%int64(g.Align) != 0:
		return bad("data offset %d is not a multiple of %d behind the header page", g.DataOffset, max(HeaderSize, g.Align))
	case g.LayerStride < g.LayerBytes() || g.LayerStride > math.MaxInt64/(4*MaxLayers) || g.LayerStride%HeaderSize != 0 || g.LayerStride%int64(g.Align) != 0:
		return bad("layer stride %d does not hold %d records of %d bytes on pages", g.LayerStride, g.Neurons, g.Stride)
	}
	return nil
}
