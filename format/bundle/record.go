package bundle

import (
	"encoding/binary"
	"hash/crc32"

	"neuroprefetcher/format"
)

// trailerMagic ends a record: the bytes "NREC".
const trailerMagic = 0x4345524e

// trailerFields is a trailer, counted from its first byte, which is stride − TrailerSize of the record.
var trailerFields = []field{
	{"magic", 0, 4},
	{"layer", 4, 2},
	{"reserved", 6, 2},
	{"neuron", 8, 4},
	{"recordCRC", 12, 4},
}

// PutRecordTrailer finishes a record whose rows are in place: it zeroes the padding and writes the trailer
// (or, for a geometry without trailers, only zeroes the padding) and returns the record's CRC-32C.
func PutRecordTrailer(g Geometry, layer, neuron int, rec []byte) uint32 {
	rec = rec[:g.Stride]
	clear(rec[g.RowBytes:])
	if !g.Trailer {
		return CRC(rec)
	}
	t := rec[g.Stride-TrailerSize:]
	binary.LittleEndian.PutUint32(t[0:], trailerMagic)
	binary.LittleEndian.PutUint16(t[4:], uint16(layer))
	binary.LittleEndian.PutUint32(t[8:], uint32(neuron))
	crc := CRC(rec[:g.Stride-4])
	binary.LittleEndian.PutUint32(t[12:], crc)
	return crc
}

// CheckRecord tells whether rec, as read from disk, is the record of this neuron and unhurt. It checks what
// the record itself carries; for a geometry without trailers see CheckRecordCRC. It does not allocate unless
// it fails.
func CheckRecord(g Geometry, layer, neuron int, rec []byte) error {
	if len(rec) < g.Stride {
		return damagef(g, layer, neuron, "%d bytes, want %d", len(rec), g.Stride)
	}
	if !g.Trailer {
		return nil
	}
	rec = rec[:g.Stride]
	t := rec[g.Stride-TrailerSize:]
	crc, want := CRC(rec[:g.Stride-4]), binary.LittleEndian.Uint32(t[12:])
	switch {
	case crc != want:
		return damagef(g, layer, neuron, "checksum %#08x, want %#08x", crc, want)
	case binary.LittleEndian.Uint32(t) != trailerMagic:
		return damagef(g, layer, neuron, "trailer magic %#08x, want %#08x", binary.LittleEndian.Uint32(t), trailerMagic)
	case int(binary.LittleEndian.Uint16(t[4:])) != layer || int64(binary.LittleEndian.Uint32(t[8:])) != int64(neuron):
		return damagef(g, layer, neuron, "its trailer names layer %d, neuron %d", binary.LittleEndian.Uint16(t[4:]), binary.LittleEndian.Uint32(t[8:]))
	case binary.LittleEndian.Uint16(t[6:]) != 0:
		return damagef(g, layer, neuron, "reserved bytes of its trailer are not zero")
	}
	return nil
}

// CheckRecordCRC is CheckRecord for a geometry without trailers; want comes from rows.crc.
func CheckRecordCRC(g Geometry, layer, neuron int, rec []byte, want uint32) error {
	if len(rec) < g.Stride {
		return damagef(g, layer, neuron, "%d bytes, want %d", len(rec), g.Stride)
	}
	if crc := CRC(rec[:g.Stride]); crc != want {
		return damagef(g, layer, neuron, "checksum %#08x, want %#08x in %s", crc, want, MemberRowsCRC)
	}
	return nil
}

// recordCRC is the checksum of a record: the trailer's, or that of all its bytes where there is none.
func recordCRC(g Geometry, rec []byte) uint32 {
	if g.Trailer {
		return binary.LittleEndian.Uint32(rec[g.Stride-4:])
	}
	return CRC(rec[:g.Stride])
}

// addCRC takes a record's checksum into its layer's: the CRC-32C of all the layer's record checksums. It is not
// taken over the records' bytes, because the CRC of data that ends in its own CRC is the same for all data.
func addCRC(layer, record uint32) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], record)
	return crc32.Update(layer, castagnoli, b[:])
}

func damagef(g Geometry, layer, neuron int, f string, a ...any) error {
	return format.Corruptf("%s: layer %d, neuron %d, offset %d: "+f, append([]any{MemberRows, layer, neuron, g.RecordOffset(layer, neuron)}, a...)...)
}
