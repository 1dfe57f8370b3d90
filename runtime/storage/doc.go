// Package storage reads many pieces of one file into memory as fast as the drive allows: io_uring and O_DIRECT where they work,
// worker threads and the page cache where they do not, the same bytes either way. Linux on amd64 and arm64.
//
// It imports format (error kinds) and nothing else of ours, and knows nothing of neurons: callers hand over a Batch, a list of
// (offset, destination), and wait for it. Checksums of what arrived are the caller's.
//
// Start at Reader. Submit appends a batch to a queue and returns; one goroutine (serve.go) owns everything else:
//
//	queue → plan.go: the next read (widened to the device's alignment, neighbours joined, gaps read through, long items split)
//	      → backend.go: io_uring (ring.go, uring.go) or preadv workers (pread.go), at most QueueDepth in flight
//	      → place.go: copied from staging to its Dst, or already there; batch done when its last read is
//
// Two ways a read lands. Staging (staging.go): a page-aligned area of fixed size, registered with the ring; good for any offset,
// and a Dst is touched only once its bytes have arrived. Direct: for batches with InPlace set, where offset, length and address
// are aligned, the kernel writes to Dst itself, several items per read when they follow each other in the file.
//
// The loop sits in a system call most of the time and on its own OS thread; a program that keeps all of GOMAXPROCS computing
// should give it one more.
//
// Invariants:
//   - batches are started strictly in order of Submit and finish each on its own;
//   - an item is Done exactly when all its bytes are placed; an error ends its own batch only;
//   - never more reads in flight than QueueDepth, never more bytes than Staging;
//   - Submit, Wait and the loop allocate nothing once a Batch has been used with its largest number of items;
//   - with O_DIRECT, Stats.Bytes is what /proc/self/io counts as read_bytes.
package storage
