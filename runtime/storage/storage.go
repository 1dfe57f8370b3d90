package storage

import "time"

// Options say how a file is to be read. The zero value is usable: automatic backend, automatic O_DIRECT, no read-through.
type Options struct {
	Backend    string // "auto" (or ""): io_uring, else pread workers; "uring": the same order, kept for the flag; "pread"
	Direct     string // "auto" (or ""): O_DIRECT where it works; "require": an error where it does not; "off": through the page cache
	QueueDepth int    // reads in flight; 0: DefaultQueueDepth
	Staging    int    // bytes of staging memory; 0: QueueDepth pieces of DefaultStagingPiece
	Gap        int    // unwanted bytes between two wanted ranges that are read through; 0: none; < 0: measured at Open
	MaxRead    int    // longest read in bytes; 0: DefaultMaxRead
}

// Info tells what Open arrived at.
type Info struct {
	Backend    string   // "uring" or "pread"
	Direct     bool     // O_DIRECT in use
	Align      int      // bytes; offsets and lengths of reads are multiples of it (1 when buffered)
	QueueDepth int      // reads in flight at most
	Gap        int      // bytes read through
	Staging    int      // bytes of staging memory
	Notes      []string // one line per fallback: what happened and what to change
}

// Item is one piece of the file and the memory it goes to; len(Dst) bytes are wanted.
type Item struct {
	Off int64
	Dst []byte
}

// Stats count work since Open, Open's own probe reads included in Reads and Bytes.
type Stats struct {
	Reads  int64         // reads asked of the kernel
	Bytes  int64         // bytes asked of the kernel, widening and gaps included
	Wanted int64         // bytes of items placed
	Busy   time.Duration // time with at least one read in flight
}
