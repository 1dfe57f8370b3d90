package bundle

import (
	"encoding/binary"
	"hash/crc32"

	"neuroprefetcher/format"
)

// Magic opens rows.np. The last two bytes catch a transfer in text mode.
const Magic = "NPROWS\r\n"

// byteOrderMark reads as 0x01020304 in the right order only.
const byteOrderMark = 0x01020304

const (
	dtypeCodeF16 = 1

	flagTrailer = 1 << 0 // records end in a trailer
	knownFlags  = flagTrailer
)

// Castagnoli is the polynomial of every CRC in a bundle.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the CRC-32C of b, as bundles store it. What was just read lies in memory, in no cache, and the checksum alone asks for
// too little at a time: one load of every line of a piece before its checksum more than doubles the speed (BenchmarkCRC).
func CRC(b []byte) uint32 {
	const piece = 8 << 10
	crc := uint32(0)
	for len(b) > piece {
		touch(b[:piece])
		crc = crc32.Update(crc, castagnoli, b[:piece])
		b = b[piece:]
	}
	touch(b)
	return crc32.Update(crc, castagnoli, b)
}

// touch loads every cache line of b. Not to be inlined, or the loads would be seen to do nothing.
//
//go:noinline
func touch(b []byte) (x byte) {
	for i := 0; i < len(b); i += 64 {
		x |= b[i]
	}
	return x
}

// field is one line of a layout table: SPEC.md, the code and Describe share it.
type field struct {
	name      string
	off, size int
}

// headerFields is the header page, in order and without holes.
var headerFields = []field{
	{"magic", 0, 8},
	{"byte-order mark", 8, 4},
	{"readVersion", 12, 2},
	{"writeVersion", 14, 2},
	{"headerLen", 16, 4},
	{"dtype", 20, 4},
	{"hidden", 24, 4},
	{"neurons", 28, 4},
	{"layers", 32, 4},
	{"rowBytes", 36, 4},
	{"stride", 40, 4},
	{"align", 44, 4},
	{"flags", 48, 4},
	{"reserved", 52, 4},
	{"dataOffset", 56, 8},
	{"layerStride", 64, 8},
	{"reserved", 72, 4020},
	{"headerCRC", 4092, 4},
}

// Header is the first page of rows.np.
type Header struct {
	ReadVersion, WriteVersion Version
	Geometry                  Geometry
}

// Encode lays out the header page.
func (h Header) Encode() []byte {
	b := make([]byte, HeaderSize)
	le := binary.LittleEndian
	copy(b, Magic)
	le.PutUint32(b[8:], byteOrderMark)
	le.PutUint16(b[12:], uint16(h.ReadVersion))
	le.PutUint16(b[14:], uint16(h.WriteVersion))
	le.PutUint32(b[16:], HeaderSize)
	g := h.Geometry
	le.PutUint32(b[20:], dtypeCodeF16)
	le.PutUint32(b[24:], uint32(g.Hidden))
	le.PutUint32(b[28:], uint32(g.Neurons))
	le.PutUint32(b[32:], uint32(g.Layers))
	le.PutUint32(b[36:], uint32(g.RowBytes))
	le.PutUint32(b[40:], uint32(g.Stride))
	le.PutUint32(b[44:], uint32(g.Align))
	if g.Trailer {
		le.PutUint32(b[48:], flagTrailer)
	}
	le.PutUint64(b[56:], uint64(g.DataOffset))
	le.PutUint64(b[64:], uint64(g.LayerStride))
	le.PutUint32(b[HeaderSize-4:], CRC(b[:HeaderSize-4]))
	return b
}

// DecodeHeader checks a header page. name is the file, for messages.
func DecodeHeader(name string, b []byte) (Header, error) {
	var h Header
	if len(b) < HeaderSize {
		return h, format.Corruptf("%s: %d bytes, shorter than its header page of %d", name, len(b), HeaderSize)
	}
	b = b[:HeaderSize]
	le := binary.LittleEndian
	if string(b[:8]) != Magic {
		return h, format.Corruptf("%s: offset 0: magic is %q, want %q: not a file of neuron records", name, b[:8], Magic)
	}
	switch m := le.Uint32(b[8:]); m {
	case byteOrderMark:
	case 0x04030201:
		return h, format.Corruptf("%s: offset 8: written in big-endian order, which is not supported", name)
	default:
		return h, format.Corruptf("%s: offset 8: byte-order mark is %#08x, want %#08x", name, m, byteOrderMark)
	}
	// The version comes before the checksum: a later version may place the checksum elsewhere.
	h.ReadVersion, h.WriteVersion = Version(le.Uint16(b[12:])), Version(le.Uint16(b[14:]))
	if err := checkVersions(name, h.ReadVersion, h.WriteVersion); err != nil {
		return h, err
	}
	if n := le.Uint32(b[16:]); n != HeaderSize {
		return h, format.Corruptf("%s: offset 16: header length is %d, want %d", name, n, HeaderSize)
	}
	if got, want := CRC(b[:HeaderSize-4]), le.Uint32(b[HeaderSize-4:]); got != want {
		return h, format.Corruptf("%s: header page: checksum %#08x, want %#08x", name, got, want)
	}
	for _, f := range headerFields {
		if f.name != "reserved" {
			continue
		}
		for i, c := range b[f.off : f.off+f.size] {
			if c != 0 {
				return h, format.Corruptf("%s: offset %d: reserved byte is %#02x, want 0", name, f.off+i, c)
			}
		}
	}
	flags := le.Uint32(b[48:])
	if x := flags &^ knownFlags; x != 0 {
		return h, format.Inputf("%s: offset 48: flag bits %#x need a newer reader", name, x)
	}
	if c := le.Uint32(b[20:]); c != dtypeCodeF16 {
		return h, format.Inputf("%s: offset 20: records of type %d are not supported by this version (1 is float16)", name, c)
	}
	h.Geometry = Geometry{
		DType:  DTypeF16,
		Hidden: u31(b[24:]), Neurons: u31(b[28:]), Layers: u31(b[32:]), RowBytes: u31(b[36:]), Stride: u31(b[40:]), Align: u31(b[44:]),
		Trailer:    flags&flagTrailer != 0,
		DataOffset: int64(le.Uint64(b[56:])), LayerStride: int64(le.Uint64(b[64:])),
	}
	return h, h.Geometry.Check(name)
}

// u31 reads a length; what does not fit 31 bits becomes −1, which every check refuses.
func u31(b []byte) int {
	if v := binary.LittleEndian.Uint32(b); v < 1<<31 {
		return int(v)
	}
	return -1
}

// checkVersions refuses a reader version that this code does not know, by number.
func checkVersions(name string, reader, writer Version) error {
	if !reader.Known() {
		return format.Hint(format.Inputf("%s: format version %d is not known to this program, which reads versions 1 to %d", name, reader, ReaderVersion),
			"use the program that made the bundle, or a newer one, or prepare the bundle again")
	}
	if writer < reader {
		return format.Corruptf("%s: writer version %d is older than reader version %d", name, writer, reader)
	}
	return nil
}
