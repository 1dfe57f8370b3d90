package storage

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// Reader reads batches of one file. All methods may be called from any goroutine.
type Reader struct {
	file *file
	info Info
	plan planner

	mu         sync.Mutex
	cond       sync.Cond // a batch has completed
	head, tail *Batch    // submitted, not taken by the loop
	sleep      sleep
	closed     bool
	call       func() // for the loop to run when nothing is in flight

	kick    chan struct{} // ends sleepIdle
	stopped chan struct{} // the loop has ended

	stats struct {
		reads, bytes, wanted atomic.Int64
		busy                 atomic.Int64 // ns, of ended busy spells
		since                atomic.Int64 // ns after start when the present one began; 0 none
		start                time.Time
	}

	// Below: the loop's own.
	backend  backend
	ops      []op
	idle     []int32 // ops not in flight
	depth    int
	cursor   cursor
	results  []result
	sinkFree func()
}

// sleep is what the loop waits in, so that Submit knows how to wake it.
type sleep uint8

const (
	awake     sleep = iota
	sleepIdle       // nothing in flight: on kick
	sleepBusy       // in backend.wait, with room for more reads
)

// Open opens a file for reading in batches: finds out how the file can be read, sets the backend up and, if asked, measures
// the gap that is worth reading through. Fallbacks are described in Info().Notes.
func Open(path string, o Options) (*Reader, error) {
	return open(path, o, func(r *Reader) { r.openBackend(o, kernelCalls) })
}

// open is Open with a choice of backend, which is made on the loop's goroutine.
func open(path string, o Options, setup func(*Reader)) (*Reader, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f, err := openFile(path, o.Direct)
	if err != nil {
		return nil, err
	}
	r := &Reader{file: f, kick: make(chan struct{}, 1), stopped: make(chan struct{})}
	r.cond.L = &r.mu
	r.stats.start = time.Now()
	r.stats.reads.Store(f.probes.Reads)
	r.stats.bytes.Store(f.probes.Bytes)
	if err := r.prepare(o); err != nil {
		f.close()
		return nil, err
	}
	ready := make(chan struct{})
	go r.serve(setup, ready)
	<-ready
	if o.Gap < 0 {
		if err := r.measureGap(); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// check refuses values that are none.
func (o *Options) check() error {
	switch o.Backend {
	case "", "auto", "uring", "pread":
	default:
		return format.Inputf("i/o backend %q: want auto, uring or pread", o.Backend)
	}
	switch o.Direct {
	case "", "auto", "require", "off":
	default:
		return format.Inputf("direct i/o %q: want auto, require or off", o.Direct)
	}
	if o.QueueDepth < 0 || o.Staging < 0 || o.MaxRead < 0 {
		return format.Inputf("queue depth %d, staging %d, longest read %d: must not be negative", o.QueueDepth, o.Staging, o.MaxRead)
	}
	return nil
}

// prepare makes everything but the backend: sizes, staging, tables.
func (r *Reader) prepare(o Options) error {
	align := r.file.align
	depth := o.QueueDepth
	if depth == 0 {
		depth = DefaultQueueDepth
	}
	depth = min(depth, maxQueueDepth)
	if o.Backend == "pread" {
		depth = min(depth, maxWorkers)
	}
	size := o.Staging
	if size == 0 {
		size = depth * DefaultStagingPiece
	}
	unit := max(stagingUnit, align)
	size = min((max(size, 2*unit)+unit-1)/unit*unit, maxStaging)
	stage, err := newStaging(size)
	if err != nil {
		return err
	}
	maxRead, maxDirect := o.MaxRead, o.MaxRead
	if maxRead == 0 {
		maxRead, maxDirect = DefaultMaxRead, DefaultMaxDirect
	}
	whole := func(n int) int { return max(min(n, maxReadLimit)/align, 1) * align }
	r.plan = planner{
		size:      r.file.size,
		align:     int64(align),
		gap:       int64(min(max(o.Gap, 0), maxGap)),
		maxStaged: whole(min(maxRead, size)),
		maxDirect: whole(maxDirect),
		stage:     stage,
	}
	r.plan.maxJoined = min(r.plan.maxStaged, whole(size/8))
	r.plan.maxSplit = min(r.plan.maxStaged, whole(size/4))
	r.depth, r.ops = depth, make([]op, depth)
	r.info = Info{
		Direct:     r.file.direct,
		Align:      align,
		QueueDepth: depth,
		Gap:        int(r.plan.gap),
		Staging:    size,
		Notes:      r.file.notes,
	}
	return r.makeSink()
}

// makeSink allocates what gaps of direct reads land in.
func (r *Reader) makeSink() error {
	n := int(r.plan.up(r.plan.gap))
	sink, free, err := AllocAligned(n)
	if err != nil {
		return err
	}
	r.plan.sink, r.sinkFree = sink, free
	return nil
}

// openBackend runs on the loop's goroutine and, for a ring, ties it to its thread: a ring belongs to the thread that made it.
func (r *Reader) openBackend(o Options, calls ringCalls) {
	if o.Backend != "pread" {
		runtime.LockOSThread()
		if o.Unregistered {
			calls.register = func(int, uint32, unsafe.Pointer, uint32) syscall.Errno { return unix.ECANCELED }
		}
		u, depth, notes, err := newURing(calls, r.file.fd, r.ops, r.plan.stage.mem)
		if o.Unregistered {
			notes = nil // they would call it a fallback
		}
		if err == nil {
			r.backend, r.depth = u, depth
			r.info.Backend, r.info.QueueDepth, r.info.Registered = "uring", depth, u.fixedBuf
			r.info.Notes = append(r.info.Notes, notes...)
		} else {
			r.info.Notes = append(r.info.Notes, fmt.Sprintf("%v; reading with worker threads; %s", err, uringAdvice(err)))
			runtime.UnlockOSThread()
		}
	}
	if r.backend == nil {
		r.depth = min(r.depth, maxWorkers)
		r.backend = newWorkers(r.file.fd, r.ops[:r.depth])
		r.info.Backend, r.info.QueueDepth = "pread", r.depth
	}
}

// Info tells how the file is read.
func (r *Reader) Info() Info { return r.info }

// Size returns the file's size in bytes.
func (r *Reader) Size() int64 { return r.file.size }

// Submit queues a batch and returns at once. Batches are started in the order of Submit. After Close a batch fails.
func (r *Reader) Submit(b *Batch) {
	r.mu.Lock()
	if b.pending {
		r.mu.Unlock()
		panic("storage: batch submitted again before it was done")
	}
	if len(b.Done) < len(b.Items) {
		b.Done = make([]bool, len(b.Items))
	}
	clear(b.Done)
	b.Err, b.next, b.split, b.planned, b.inflight = nil, nil, b.split[:0], false, 0
	if r.closed {
		b.Err = format.IOf("read %s: reader is closed", r.file.path)
		r.mu.Unlock()
		return
	}
	b.pending = true
	if r.head == nil {
		r.head = b
	} else {
		r.tail.next = b
	}
	r.tail = b
	r.rouse()
}

// Register tells the kernel about memory that reads will land in, so that it need not look up its pages for every read. It
// waits for the reads in flight, and may be called once. An error says why the kernel did not take it, the locked-memory
// limit as a rule; reads work all the same. The memory must outlive the Reader.
func (r *Reader) Register(regions [][]byte) (err error) {
	if len(regions) == 0 {
		return nil
	}
	done := make(chan struct{})
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return format.IOf("read %s: reader is closed", r.file.path)
	}
	r.call = func() {
		if u, ok := r.backend.(*uring); ok {
			err = u.register(regions)
		} else {
			err = unix.ENOSYS
		}
		close(done)
	}
	r.rouse()
	<-done
	r.info.InPlaceRegistered = err == nil
	return err
}

// rouse unlocks mu and wakes the loop if it sleeps.
func (r *Reader) rouse() {
	was := r.sleep
	r.sleep = awake
	r.mu.Unlock()
	switch was {
	case sleepIdle:
		r.kick <- struct{}{}
	case sleepBusy:
		r.backend.wake()
	}
}

// Wait blocks until the batch is done and returns its error. Later batches may still be in flight. A batch that was never
// submitted is done.
func (r *Reader) Wait(b *Batch) error {
	r.mu.Lock()
	for b.pending {
		r.cond.Wait()
	}
	r.mu.Unlock()
	return b.Err
}

// Stats returns what has been read since Open.
func (r *Reader) Stats() Stats {
	busy := time.Duration(r.stats.busy.Load())
	if since := r.stats.since.Load(); since != 0 {
		busy += time.Since(r.stats.start) - time.Duration(since)
	}
	return Stats{Reads: r.stats.reads.Load(), Bytes: r.stats.bytes.Load(), Wanted: r.stats.wanted.Load(), Busy: busy}
}

// Close serves what was submitted, then gives everything back. Calling it again does nothing.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.rouse()
	<-r.stopped
	return nil
}

// release frees what the loop used, at its end.
func (r *Reader) release() {
	r.backend.close()
	if u, ok := r.backend.(*uring); ok && u.dead != 0 {
		return // the kernel may still write to staging
	}
	r.file.close()
	r.plan.stage.free()
	r.sinkFree()
}

// iovBytes is the memory an iovec names.
func iovBytes(v *unix.Iovec) []byte { return unsafe.Slice(v.Base, v.Len) }
