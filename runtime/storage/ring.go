package storage

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is the kernel's interface of io_uring and nothing more: setup, registration, the two shared queues. uring.go is its
// only user, behind the backend interface, so another ring library can take its place by implementing backend. The one usually
// named for Go, pawelgaczynski/giouring, is not used: it no longer links (it refers to syscall.munmap, closed since Go 1.23),
// hands file tables to the kernel as 8-byte integers, and leaves old fields in reused entries.
//
// Layouts and numbers are those of linux/io_uring.h; x/sys has only the system call numbers.

type sqOffsets struct {
	head, tail, ringMask uint32
	_                    [3]uint32 // ring_entries, flags, dropped
	array                uint32
	_                    uint32
	_                    uint64 // user_addr
}

type cqOffsets struct {
	head, tail, ringMask uint32
	_                    [2]uint32 // ring_entries, overflow
	cqes                 uint32
	_                    [2]uint32 // flags
	_                    uint64    // user_addr
}

type ringParams struct {
	sqEntries, cqEntries, flags uint32
	_                           [2]uint32 // sq_thread_cpu, sq_thread_idle
	features                    uint32
	_                           [4]uint32 // wq_fd
	sq                          sqOffsets
	cq                          cqOffsets
}

// sqe is one submission entry.
type sqe struct {
	opcode, flags uint8
	_             uint16 // ioprio
	fd            int32
	off           uint64
	addr          uint64
	len           uint32
	_             uint32 // rw_flags
	userData      uint64
	bufIndex      uint16
	_             [22]byte // personality, splice_fd_in, addr3
}

// cqe is one completion entry.
type cqe struct {
	userData uint64
	res      int32
	_        uint32 // flags
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(ringParams{})-120]
	_ = [1]struct{}{}[unsafe.Sizeof(sqe{})-64]
	_ = [1]struct{}{}[unsafe.Sizeof(cqe{})-16]
)

const (
	setupCoopTaskrun  = 1 << 8  // 5.19: completions do not interrupt the thread
	setupSingleIssuer = 1 << 12 // 6.0: one thread submits
	setupDeferTaskrun = 1 << 13 // 6.1: completion work runs when we ask for events

	featSingleMmap = 1 << 0

	opNop       = 0
	opReadv     = 1
	opReadFixed = 4
	opRead      = 22

	sqeFixedFile = 1 << 0

	enterGetEvents = 1 << 0

	registerBuffers   = 0
	unregisterBuffers = 1
	registerFiles     = 2

	offSQRing = 0
	offSQEs   = 0x10000000 // mmap offsets
)

// setupLadder is tried from the top while the kernel says EINVAL.
var setupLadder = []uint32{
	setupSingleIssuer | setupDeferTaskrun | setupCoopTaskrun,
	setupSingleIssuer | setupCoopTaskrun,
	setupCoopTaskrun,
	0,
}

// ringCalls are the system calls of a ring and of its wake-up; tests put refusals in front of them.
type ringCalls struct {
	eventfd  func(value uint, flags int) (int, error)
	setup    func(entries uint32, p *ringParams) (int, syscall.Errno)
	enter    func(fd int, submit, wait, flags uint32) (int, syscall.Errno)
	register func(fd int, op uint32, arg unsafe.Pointer, n uint32) syscall.Errno
}

var kernelCalls = ringCalls{
	eventfd: unix.Eventfd,
	setup: func(entries uint32, p *ringParams) (int, syscall.Errno) {
		fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
		return int(fd), e
	},
	enter: func(fd int, submit, wait, flags uint32) (int, syscall.Errno) {
		n, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), uintptr(flags), 0, 0)
		return int(n), e
	},
	register: func(fd int, op uint32, arg unsafe.Pointer, n uint32) syscall.Errno {
		_, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
		return e
	},
}

// ring is one io_uring. With SINGLE_ISSUER every method belongs to the OS thread that made it.
type ring struct {
	calls   ringCalls
	fd      int
	flags   uint32
	entries uint32 // of the submission queue; the completion queue has cqEntries ≥ entries
	maps    [2][]byte

	sqHead, sqTail *uint32 // head moves with the kernel, tail is ours
	cqHead, cqTail *uint32 // head is ours, tail moves with the kernel
	sqMask, cqMask uint32
	sqes           []sqe
	cqes           []cqe

	tail      uint32 // entries filled in
	submitted uint32 // entries the kernel has taken
}

// newRing makes a ring of at least that many entries, fewer flags where the kernel does not know them, and half the entries
// (again and again) where it lacks memory. The error is the errno of the last attempt.
func newRing(calls ringCalls, entries uint32) (*ring, error) {
	var p ringParams
	fd, errno := 0, syscall.Errno(0)
	for {
		for _, flags := range setupLadder {
			p = ringParams{flags: flags}
			if fd, errno = calls.setup(entries, &p); errno != unix.EINVAL {
				break
			}
		}
		if errno != unix.ENOMEM || entries <= 2 {
			break
		}
		entries /= 2
	}
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{calls: calls, fd: fd, flags: p.flags, entries: p.sqEntries}
	if err := r.mapQueues(&p); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *ring) mapQueues(p *ringParams) error {
	if p.features&featSingleMmap == 0 {
		return fmt.Errorf("io_uring: %w (kernel older than 5.4)", unix.ENOSYS)
	}
	if p.cqEntries < p.sqEntries {
		return fmt.Errorf("io_uring: %w (completion queue of %d entries)", unix.EINVAL, p.cqEntries)
	}
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	for i, m := range []struct {
		off  int64
		size uint32
	}{{offSQRing, size}, {offSQEs, p.sqEntries * uint32(unsafe.Sizeof(sqe{}))}} {
		mem, err := unix.Mmap(r.fd, m.off, int(m.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("io_uring: mmap: %w", err)
		}
		r.maps[i] = mem
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.maps[0][off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.ringMask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.ringMask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.maps[1][0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.maps[0][p.cq.cqes])), p.cqEntries)
	for i, a := 0, unsafe.Slice(word(p.sq.array), p.sqEntries); i < len(a); i++ {
		a[i] = uint32(i) // entry i of the queue is always sqes[i]
	}
	return nil
}

func (r *ring) close() {
	for _, m := range r.maps {
		if m != nil {
			unix.Munmap(m)
		}
	}
	unix.Close(r.fd)
}

// room says how many entries can be filled in now.
func (r *ring) room() uint32 { return r.entries - (r.tail - atomic.LoadUint32(r.sqHead)) }

// next returns a zeroed entry to fill in; nil when the queue is full.
func (r *ring) next() *sqe {
	if r.room() == 0 {
		return nil
	}
	e := &r.sqes[r.tail&r.sqMask]
	*e = sqe{}
	r.tail++
	return e
}

// unsubmitted is how many filled entries the kernel has not taken.
func (r *ring) unsubmitted() uint32 { return r.tail - r.submitted }

// enter hands filled entries over and, once all are taken, waits for that many completions. The kernel may take fewer; the rest
// stays for the next call. It returns 0, or the errno when nothing was taken; interrupted calls are repeated.
func (r *ring) enter(wait uint32) syscall.Errno {
	atomic.StoreUint32(r.sqTail, r.tail)
	for {
		n, errno := r.calls.enter(r.fd, r.unsubmitted(), wait, enterGetEvents)
		if errno == unix.EINTR {
			continue
		}
		if errno == 0 {
			r.submitted += uint32(n)
		}
		return errno
	}
}

// ready says that a completion can be popped.
func (r *ring) ready() bool { return *r.cqHead != atomic.LoadUint32(r.cqTail) }

// pop returns the next completion.
func (r *ring) pop() (cqe, bool) {
	head := *r.cqHead // ours alone
	if head == atomic.LoadUint32(r.cqTail) {
		return cqe{}, false
	}
	c := r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	return c, true
}

// registerBuffers hands the ring its table of buffers, in that order.
func (r *ring) registerBuffers(bufs ...[]byte) syscall.Errno {
	iov := make([]unix.Iovec, len(bufs))
	for i, b := range bufs {
		iov[i].Base = &b[0]
		iov[i].SetLen(len(b))
	}
	return r.calls.register(r.fd, registerBuffers, unsafe.Pointer(&iov[0]), uint32(len(iov)))
}

func (r *ring) unregisterBuffers() syscall.Errno {
	return r.calls.register(r.fd, unregisterBuffers, nil, 0)
}

func (r *ring) registerFile(fd int) syscall.Errno {
	fds := int32(fd) // the kernel's table is of 32-bit integers
	return r.calls.register(r.fd, registerFiles, unsafe.Pointer(&fds), 1)
}

// settle repeats enter while the kernel lacks memory or room for completions, giving it time. With a completion to reap it
// returns at once: reaping is what frees room. A second of refusals in a row is an answer.
func (r *ring) settle(wait uint32) syscall.Errno {
	for try := 0; ; try++ {
		errno := r.enter(wait)
		if errno != unix.EAGAIN && errno != unix.EBUSY {
			return errno
		}
		if r.ready() {
			return 0
		}
		if try == 1000 {
			return errno
		}
		time.Sleep(time.Millisecond)
	}
}
