package bundle

// Version is the number of a layout. A bundle carries two: the reader version, which a program must know to
// read it at all, and the writer version, which says what the bundle was written as. A reader accepts any
// writer version, because a change that old readers cannot follow also raises the reader version.
type Version int

// Append only. A retired number keeps its line as a comment and is never used again.
const (
	Version1 Version = 1 // header page, float16 records, trailer or side table
	// next: 2

	// ReaderVersion is the newest reader version this code understands, and the one it writes.
	ReaderVersion = Version1
	// WriterVersion is what this code writes.
	WriterVersion = Version1
)

// Known reports whether this code can read bundles of reader version v.
func (v Version) Known() bool { return v >= Version1 && v <= ReaderVersion }

// HasRowChecksums reports whether every record has a CRC-32C, in its trailer or in rows.crc.
func (v Version) HasRowChecksums() bool { return v >= Version1 }

// HasLayerChecksums reports whether the manifest holds a CRC-32C of every layer's block.
func (v Version) HasLayerChecksums() bool { return v >= Version1 }
