package storage

import "time"

// Defaults of Options.
const (
	DefaultQueueDepth = 256
	// DefaultStagingPiece is staging memory per read in flight: a 24.5 KiB record and its widening. 256 of them are 7 MiB, which a
	// locked-memory limit of 8 MiB still admits as a registered buffer.
	DefaultStagingPiece = 28 << 10
	// DefaultMaxRead bounds a read that joins several items; DefaultMaxDirect one that lands in one piece of aligned memory.
	DefaultMaxRead   = 1 << 20
	DefaultMaxDirect = 4 << 20
	// DefaultGap is used where the drive was not measured: at 1 GB/s and 60,000 reads/s a read costs as much as 16 KiB.
	DefaultGap = 16 << 10
)

// Limits on Options; values beyond them are cut to the limit.
const (
	maxQueueDepth = 4096     // the ring's own tables stay below 1 MiB
	maxReadLimit  = 64 << 20 // one read; the kernel's own limit is 2 GiB − 4 KiB
	maxGap        = 1 << 20
	maxStaging    = 1 << 30 // the kernel registers no buffer longer than 1 GiB
)

// Options say how a file is to be read. The zero value is usable: automatic backend, automatic O_DIRECT, no read-through.
type Options struct {
	Backend    string // "auto" (or "") and "uring": io_uring, else pread workers with a note; "pread": workers
	Direct     string // "auto" (or ""): O_DIRECT where it works; "require": an error where it does not; "off": through the page cache
	QueueDepth int    // reads in flight; 0: DefaultQueueDepth
	Staging    int    // bytes of staging memory; 0: DefaultStagingPiece per read in flight
	Gap        int    // unwanted bytes between two wanted ranges that are read through; 0: none; < 0: measured at Open, a few ms
	MaxRead    int    // longest read in bytes; 0: DefaultMaxRead, DefaultMaxDirect for aligned destinations

	Unregistered bool // the ring works with a plain descriptor and plain buffers: to measure what registering them brings
}

// Info tells what Open arrived at.
type Info struct {
	Backend    string   // "uring" or "pread"
	Direct     bool     // O_DIRECT in use
	Align      int      // bytes; offsets and lengths of reads are multiples of it (1 when buffered)
	QueueDepth int      // reads in flight at most
	Gap        int      // bytes read through
	Staging    int      // bytes of staging memory
	Registered bool     // staging is registered with the ring
	Notes      []string // one line per fallback: what happened and what to change

	InPlaceRegistered bool // the memory given to Register is registered too
}

// Item is one piece of the file and the memory it goes to; len(Dst) bytes are wanted.
type Item struct {
	Off int64
	Dst []byte
}

// Batch is a list of items that are read together. It may be used again once Wait has returned; between Submit and Wait it and
// every Dst belong to the Reader.
type Batch struct {
	Items []Item // ascending Off; other orders work, but join nothing
	Done  []bool // item i has been placed; made longer by Submit if shorter than Items

	// InPlace lets reads land straight in Dst where offset, length and address are multiples of Info.Align. The price: an item
	// that fails may have part of its Dst overwritten. Without it a failed item's Dst is untouched, unless the item is longer
	// than one read (MaxRead or Staging).
	InPlace bool

	Err error // the first failure by offset, as Wait returns it

	next      *Batch
	split     []split // items longer than one read
	pending   bool    // between Submit and completion; guarded by Reader.mu
	planned   bool    // no more reads to start
	inflight  int
	failedOff int64
}

// split counts down an item that takes several reads.
type split struct{ item, left int }

// Stats count work since Open, Open's own probe reads included in Reads and Bytes.
type Stats struct {
	Reads  int64         // reads answered by the kernel
	Bytes  int64         // bytes asked for in them, widening and gaps included
	Wanted int64         // bytes of items placed
	Busy   time.Duration // time with at least one read in flight
}
