package storage

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxWorkers bounds the threads of the pread backend; past some dozens a drive gains nothing and each costs a stack.
const maxWorkers = 64

// workers is the backend of last resort, good on any kernel: goroutines that each sit in one preadv.
type workers struct {
	ops  []op
	fd   int
	jobs chan int32
	done chan result
	kick chan struct{}
}

func newWorkers(fd int, ops []op) *workers {
	w := &workers{
		ops:  ops,
		fd:   fd,
		jobs: make(chan int32, len(ops)),
		done: make(chan result, len(ops)),
		kick: make(chan struct{}, 1),
	}
	for range ops {
		go w.work()
	}
	return w
}

func (w *workers) work() {
	for i := range w.jobs {
		w.done <- result{i, preadv(w.fd, &w.ops[i])}
	}
}

// preadv makes one attempt at an op; bytes or minus the errno.
func preadv(fd int, o *op) int32 {
	for {
		n, _, e := unix.Syscall6(unix.SYS_PREADV, uintptr(fd), uintptr(unsafe.Pointer(&o.iovs[0])), uintptr(len(o.iovs)), uintptr(o.pos()), 0, 0)
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return -int32(e)
		}
		return int32(n)
	}
}

func (w *workers) start(i int) { w.jobs <- int32(i) }

func (w *workers) wait(results []result) int {
	select {
	case results[0] = <-w.done:
	case <-w.kick:
		return 0
	}
	for n := 1; n < len(results); n++ {
		select {
		case results[n] = <-w.done:
		default:
			return n
		}
	}
	return len(results)
}

func (w *workers) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *workers) close() { close(w.jobs) }
