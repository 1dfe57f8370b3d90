package storage

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// backend moves bytes: the smallest thing that io_uring, worker threads (or another ring library) have in common. All methods
// but wake are called by the goroutine that opened it.
type backend interface {
	// start begins the read of ops[i]: its iovecs, from its offset. The caller keeps at most depth in flight.
	start(i int)
	// wait blocks until a read has ended or wake is called, and fills results. It returns how many; 0 after a wake.
	wait(results []result) int
	// wake makes the present or next wait return. From any goroutine.
	wake()
	close()
}

// result is the end of a read: bytes read, or minus the errno.
type result struct {
	op  int32
	res int32
}

// maxIov is how many pieces of memory one direct read may fill.
const maxIov = 32

// op is one read. Ops live in a table of QueueDepth and are used again and again.
type op struct {
	batch       *Batch
	first, last int   // its items: Items[first] from `from` on … Items[last] up to `to`
	from, to    int64 // wanted range of the file
	off         int64 // the read as asked of the kernel
	n           int
	got         int    // bytes that an earlier, short try has brought; a multiple of the alignment
	buf         []byte // (n) staging; nil when direct
	iov         [maxIov]unix.Iovec
	iovs        []unix.Iovec // what is left to fill, a part of iov
	tries       int
}

// pos and left say what is to be read next.
func (o *op) pos() int64 { return o.off + int64(o.got) }
func (o *op) left() int  { return o.n - o.got }

// addIov appends memory to fill; false when the table is full.
func (o *op) addIov(b []byte) bool {
	k := len(o.iovs)
	if k == maxIov {
		return false
	}
	o.iovs = o.iov[:k+1]
	o.iovs[k].Base = &b[0]
	o.iovs[k].SetLen(len(b))
	return true
}

// transient says that a read's errno asks for another try.
func transient(e syscall.Errno) bool {
	return e == unix.EAGAIN || e == unix.EINTR || e == unix.EBUSY
}
