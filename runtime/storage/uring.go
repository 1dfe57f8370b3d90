package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uring is the backend on io_uring. Made and used by one locked OS thread; only wake comes from elsewhere.
type uring struct {
	ring      *ring
	ops       []op
	fd        int32
	fileFlag  uint8 // sqeFixedFile when fd is an index into the registered files
	stage     []byte
	fixedBuf  bool     // stage is buffer 0 of the ring
	regions   [][]byte // buffers 1… of the ring, ascending addresses
	eventFD   int      // wake writes to it; a read of it is kept in the ring
	eventWord *uint64  // where that read lands
	armed     bool
	flying    []bool        // by op: in the ring
	dead      syscall.Errno // the ring stopped working; every read ends with this
}

const tagWake = ^uint64(0)

// newURing sets up a ring for reads of ops from fd, len(ops) in flight at most, fewer when memory is short: the depth is
// returned. Staging is registered if the kernel allows; notes say what it did not.
func newURing(calls ringCalls, fd int, ops []op, stage []byte) (u *uring, depth int, notes []string, err error) {
	want := uint32(2)
	for want < uint32(len(ops))+1 { // one entry more: the read of eventFD
		want *= 2
	}
	rg, err := newRing(calls, want)
	if err != nil {
		return nil, 0, nil, err
	}
	x := &uring{ring: rg, ops: ops, stage: stage, fd: int32(fd), eventFD: -1, eventWord: new(uint64), flying: make([]bool, len(ops))}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if err = x.try(); err != nil {
		return nil, 0, nil, err
	}
	if x.eventFD, err = calls.eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, 0, nil, fmt.Errorf("io_uring wake-up: eventfd: %w", err)
	}
	depth = min(len(ops), int(rg.entries)-1)
	if depth < len(ops) {
		notes = append(notes, fmt.Sprintf("io_uring: no memory for a ring of %d entries, queue depth is %d; raise the locked-memory limit (ulimit -l) or lower --queue-depth", want, depth))
	}
	if e := rg.registerFile(fd); e == 0 {
		x.fd, x.fileFlag = 0, sqeFixedFile
	} else {
		notes = append(notes, fmt.Sprintf("io_uring_register files: %v; going on with an unregistered file", e))
	}
	if e := rg.registerBuffers(stage); e == 0 {
		x.fixedBuf = true
	} else {
		notes = append(notes, fmt.Sprintf("io_uring_register buffers: %v; going on with unregistered buffers; raise the locked-memory limit (ulimit -l) above %d KiB", e, len(stage)>>10))
	}
	return x, depth, notes, nil
}

// try sends one no-op through the ring: sandboxes may allow the setup and refuse the rest.
func (u *uring) try() error {
	u.ring.next().opcode = opNop
	for {
		if e := u.ring.settle(1); e != 0 {
			return fmt.Errorf("io_uring_enter: %w", e)
		}
		if c, ok := u.ring.pop(); ok {
			if c.res < 0 {
				return fmt.Errorf("io_uring no-op: %w", syscall.Errno(-c.res))
			}
			return nil
		}
	}
}

func (u *uring) start(i int) {
	u.flying[i] = true
	o := &u.ops[i]
	if u.dead != 0 {
		return
	}
	e := u.ring.next() // there is one: the ring has more entries than ops
	e.fd, e.flags, e.off, e.userData = u.fd, u.fileFlag, uint64(o.pos()), uint64(i)
	switch {
	case len(o.iovs) > 1:
		e.opcode, e.addr, e.len = opReadv, uint64(uintptr(unsafe.Pointer(&o.iovs[0]))), uint32(len(o.iovs))
		return
	case o.buf != nil && u.fixedBuf:
		e.opcode, e.bufIndex = opReadFixed, 0
	default:
		e.opcode = opRead
		if k := u.region(iovBytes(&o.iovs[0])); k > 0 {
			e.opcode, e.bufIndex = opReadFixed, uint16(k)
		}
	}
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(o.iovs[0].Base))), uint32(o.left())
}

// region is the index of the ring's buffer that b lies in; 0 where it lies in none.
func (u *uring) region(b []byte) int {
	at := address(b)
	k := sort.Search(len(u.regions), func(i int) bool { return address(u.regions[i]) > at })
	if k == 0 || at+uintptr(len(b)) > address(u.regions[k-1])+uintptr(len(u.regions[k-1])) {
		return 0
	}
	return k
}

// maxBuffer is the longest buffer that the kernel takes.
const maxBuffer = 1 << 30

// register makes regions buffers of the ring beside staging. Where the kernel refuses, staging alone stays one.
func (u *uring) register(regions [][]byte) error {
	if !u.fixedBuf {
		return unix.ENOMEM
	}
	if e := u.ring.unregisterBuffers(); e != 0 {
		return e
	}
	for _, r := range regions {
		u.regions = slices.AppendSeq(u.regions, slices.Chunk(r, maxBuffer))
	}
	slices.SortFunc(u.regions, func(a, b []byte) int { return cmp.Compare(address(a), address(b)) })
	e := u.ring.registerBuffers(append([][]byte{u.stage}, u.regions...)...)
	if e == 0 {
		return nil
	}
	u.regions = nil
	u.fixedBuf = u.ring.registerBuffers(u.stage) == 0
	return e
}

func (u *uring) wait(results []result) int {
	for u.dead == 0 {
		if !u.armed {
			e := u.ring.next()
			e.opcode, e.fd, e.addr, e.len, e.userData = opRead, int32(u.eventFD), uint64(uintptr(unsafe.Pointer(u.eventWord))), 8, tagWake
			u.armed = true
		}
		block := uint32(1)
		if u.ring.ready() {
			block = 0
		}
		if block == 1 || u.ring.unsubmitted() > 0 {
			u.dead = u.ring.settle(block)
		}
		if n, woken := u.reap(results); n > 0 || woken {
			return n
		}
	}
	// The ring is gone: every read it held ends with its errno.
	n := 0
	for i := range u.flying {
		if u.flying[i] && n < len(results) {
			u.flying[i] = false
			results[n] = result{int32(i), -int32(u.dead)}
			n++
		}
	}
	return n
}

// reap empties the completion queue into results.
func (u *uring) reap(results []result) (n int, woken bool) {
	for n < len(results) {
		c, ok := u.ring.pop()
		if !ok {
			break
		}
		if c.userData == tagWake {
			u.armed, woken = false, true
			continue
		}
		u.flying[c.userData] = false
		results[n] = result{int32(c.userData), c.res}
		n++
	}
	return n, woken
}

func (u *uring) wake() {
	one := uint64(1)
	for {
		_, err := unix.Write(u.eventFD, unsafe.Slice((*byte)(unsafe.Pointer(&one)), 8))
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// close ends the read of eventFD first: nothing may be written to our memory later.
func (u *uring) close() {
	for u.armed && u.dead == 0 {
		u.wake()
		u.dead = u.ring.settle(1)
		for {
			c, ok := u.ring.pop()
			if !ok {
				break
			}
			u.armed = u.armed && c.userData != tagWake
		}
	}
	u.ring.close()
	if u.eventFD >= 0 {
		unix.Close(u.eventFD)
	}
}

// uringAdvice says what to change to get io_uring.
func uringAdvice(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "allow io_uring: sysctl kernel.io_uring_disabled=0 and, in a container, a seccomp profile that permits io_uring_setup, io_uring_enter and io_uring_register"
	case errors.Is(err, unix.ENOSYS):
		return "use a kernel of 5.6 or later with CONFIG_IO_URING, or a sandbox that passes io_uring on"
	case errors.Is(err, unix.ENOMEM):
		return "raise the locked-memory limit (ulimit -l) or lower --queue-depth"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "raise the limit of open files (ulimit -n)"
	}
	return "choose --io pread to be rid of this line"
}
