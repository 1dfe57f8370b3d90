package storage

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel below is the real one; each test puts refusals in front of it.

// openWith opens a reader whose ring goes through calls.
func openWith(t *testing.T, path string, o Options, calls ringCalls) *Reader {
	t.Helper()
	r, err := open(path, o, func(r *Reader) { r.openBackend(o, calls) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// mustRead reads random lists and checks the bytes.
func mustRead(t *testing.T, r *Reader) {
	t.Helper()
	for range 5 {
		b := &Batch{}
		mem := make([]byte, 300*3000)
		for i := range 300 {
			b.Items = append(b.Items, Item{int64(i * 3400), mem[i*3000:][:3000]})
		}
		blank(mem)
		r.Submit(b)
		if err := r.Wait(b); err != nil {
			t.Fatal(err)
		}
		for i, done := range b.Done {
			if !done {
				t.Fatalf("item %d not done", i)
			}
		}
		if err := checkMem(mem, b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSetupLadder: EINVAL for flags that an old kernel does not know leads to fewer flags.
func TestSetupLadder(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for rung, flags := range setupLadder {
		calls := kernelCalls
		tried := 0
		calls.setup = func(entries uint32, p *ringParams) (int, syscall.Errno) {
			tried++
			if p.flags&^flags != 0 {
				return -1, unix.EINVAL
			}
			return kernelCalls.setup(entries, p)
		}
		r := openWith(t, path, Options{}, calls)
		u, ok := r.backend.(*uring)
		if !ok {
			t.Fatalf("flags %#x: backend %s, notes %q", flags, r.info.Backend, r.info.Notes)
		}
		if tried != rung+1 || u.ring.flags != flags {
			t.Errorf("flags %#x: %d tries ended with %#x", flags, tried, u.ring.flags)
		}
		if len(r.Info().Notes) != 0 {
			t.Errorf("notes %q for a ring that only lacks flags", r.Info().Notes)
		}
		mustRead(t, r)
	}
}

// TestRingHalved: ENOMEM at setup halves the ring, and the depth goes with it.
func TestRingHalved(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	calls := kernelCalls
	calls.setup = func(entries uint32, p *ringParams) (int, syscall.Errno) {
		if entries > 64 {
			return -1, unix.ENOMEM
		}
		return kernelCalls.setup(entries, p)
	}
	r := openWith(t, path, Options{QueueDepth: 256}, calls)
	if i := r.Info(); i.Backend != "uring" || i.QueueDepth != 63 || len(i.Notes) != 1 || !strings.Contains(i.Notes[0], "ulimit -l") {
		t.Errorf("%+v", i)
	}
	mustRead(t, r)
	calls.setup = func(uint32, *ringParams) (int, syscall.Errno) { return -1, unix.ENOMEM }
	r = openWith(t, path, Options{QueueDepth: 256}, calls)
	if i := r.Info(); i.Backend != "pread" || len(i.Notes) != 1 || !strings.Contains(i.Notes[0], "cannot allocate memory") {
		t.Errorf("%+v", i)
	}
	mustRead(t, r)
}

// TestSetupRefused: any failure to set up, also of the first enter, leads to workers and a line that says what to change.
func TestSetupRefused(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for _, e := range []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.EINVAL, unix.EMFILE} {
		setup, enter := kernelCalls, kernelCalls
		setup.setup = func(uint32, *ringParams) (int, syscall.Errno) { return -1, e }
		enter.enter = func(int, uint32, uint32, uint32) (int, syscall.Errno) { return -1, e }
		event := kernelCalls
		event.eventfd = func(uint, int) (int, error) { return -1, e }
		for name, calls := range map[string]ringCalls{"io_uring_setup": setup, "io_uring_enter": enter, "eventfd": event} {
			r := openWith(t, path, Options{}, calls)
			i := r.Info()
			if i.Backend != "pread" || len(i.Notes) != 1 || !strings.Contains(i.Notes[0], e.Error()) || !strings.Contains(i.Notes[0], name) {
				t.Errorf("%s %v: %+v", name, e, i)
			}
			mustRead(t, r)
		}
	}
}

// TestRegisterRefused: a ring without registered memory or file still is a ring.
func TestRegisterRefused(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for _, refuse := range [][]uint32{{registerBuffers}, {registerFiles}, {registerBuffers, registerFiles}} {
		calls := kernelCalls
		calls.register = func(fd int, op uint32, arg unsafe.Pointer, n uint32) syscall.Errno {
			for _, k := range refuse {
				if op == k {
					return unix.ENOMEM
				}
			}
			return kernelCalls.register(fd, op, arg, n)
		}
		r := openWith(t, path, Options{}, calls)
		i := r.Info()
		if i.Backend != "uring" || len(i.Notes) != len(refuse) || i.Registered == (refuse[0] == registerBuffers) {
			t.Errorf("%v refused: %+v", refuse, i)
		}
		mustRead(t, r)
	}
}

// TestEnterTrouble: full queues, no memory, interrupts and partial submits, at every third or so call.
func TestEnterTrouble(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for _, c := range []struct {
		name  string
		enter func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno)
	}{
		{"EBUSY", func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if call%3 == 0 {
				return -1, unix.EBUSY
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}},
		{"EAGAIN", func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if call%3 != 0 {
				return -1, unix.EAGAIN
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}},
		{"EINTR", func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if call%2 == 0 {
				return -1, unix.EINTR
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}},
		{"partial", func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if submit > 1 {
				return kernelCalls.enter(fd, submit/2, 0, flags)
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}},
		{"nothing taken", func(call int64, fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if call%2 == 0 {
				return 0, 0
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}},
	} {
		for _, depth := range []int{1, 4, 256} {
			var n atomic.Int64
			calls := kernelCalls
			calls.enter = func(fd int, submit, wait, flags uint32) (int, syscall.Errno) {
				return c.enter(n.Add(1), fd, submit, wait, flags)
			}
			r := openWith(t, path, Options{QueueDepth: depth}, calls)
			if i := r.Info(); i.Backend != "uring" {
				t.Fatalf("%s: %+v", c.name, i)
			}
			mustRead(t, r)
		}
	}
}

// TestNeverTooMany counts entries in flight: never more than the completion queue holds, nor than the depth and its wake-up.
func TestNeverTooMany(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for _, depth := range []int{1, 4, 100} {
		var r *Reader
		worst := uint32(0)
		calls := kernelCalls
		calls.enter = func(fd int, submit, wait, flags uint32) (int, syscall.Errno) {
			if r != nil {
				if u, ok := r.backend.(*uring); ok {
					worst = max(worst, u.ring.tail-*u.ring.cqHead)
				}
			}
			return kernelCalls.enter(fd, submit, wait, flags)
		}
		o := Options{QueueDepth: depth}
		var err error
		r, err = open(path, o, func(rr *Reader) { r = rr; rr.openBackend(o, calls) })
		if err != nil {
			t.Fatal(err)
		}
		mustRead(t, r)
		r.Close()
		if worst == 0 || worst > uint32(depth)+1 {
			t.Errorf("depth %d: %d entries in flight", depth, worst)
		}
	}
}

// TestRingDies: when the ring stops for good, every batch ends with the errno instead of hanging.
func TestRingDies(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	var dead atomic.Bool
	calls := kernelCalls
	calls.enter = func(fd int, submit, wait, flags uint32) (int, syscall.Errno) {
		if dead.Load() {
			return -1, unix.EBADF
		}
		return kernelCalls.enter(fd, submit, wait, flags)
	}
	r := openWith(t, path, Options{QueueDepth: 4}, calls)
	mustRead(t, r)
	dead.Store(true)
	for range 3 {
		b := &Batch{}
		for i := range 20 {
			b.Items = append(b.Items, Item{int64(i * 9000), make([]byte, 100)})
		}
		r.Submit(b)
		if err := r.Wait(b); !errors.Is(err, unix.EBADF) {
			t.Fatalf("error %v", err)
		}
	}
}
