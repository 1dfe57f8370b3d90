package storage

import (
	"time"

	"neuroprefetcher/format"
)

// serve is the I/O loop: start reads while there is room, wait, place what came, until the reader is closed and drained.
func (r *Reader) serve(setup func(*Reader), ready chan<- struct{}) {
	setup(r)
	r.results = make([]result, r.depth)
	for i := range r.depth {
		r.idle = append(r.idle, int32(r.depth-1-i))
	}
	close(ready)
	defer close(r.stopped)
	for r.fill() {
		if len(r.idle) == r.depth {
			continue // the batches taken needed no reads
		}
		n := r.wait()
		for _, res := range r.results[:n] {
			r.end(res)
		}
	}
	r.release()
}

// fill starts reads until depth, staging or work runs out. With nothing in flight and nothing queued it sleeps; false means
// closed and drained.
func (r *Reader) fill() bool {
	for len(r.idle) > 0 {
		if len(r.idle) == r.depth {
			r.run()
		}
		if r.cursor.batch == nil && !r.take() {
			if len(r.idle) < r.depth {
				return true
			}
			return r.sleepIdle()
		}
		b := r.cursor.batch
		i := r.idle[len(r.idle)-1]
		switch r.plan.plan(&r.cursor, &r.ops[i]) {
		case planRead:
			r.idle = r.idle[:len(r.idle)-1]
			b.inflight++
			r.begin()
			r.backend.start(int(i))
		case planFull:
			return true
		case planBad:
			it := &b.Items[r.cursor.item]
			r.fail(b, it.Off, format.IOf("%w", r.plan.outside(r.file.path, it)))
		case planEnd:
			b.planned = true
			r.cursor = cursor{}
			r.complete(b)
		}
	}
	return true
}

// run does what waits for a moment without reads.
func (r *Reader) run() {
	r.mu.Lock()
	call := r.call
	r.call = nil
	r.mu.Unlock()
	if call != nil {
		call()
	}
}

// take moves the first queued batch to the cursor.
func (r *Reader) take() bool {
	r.mu.Lock()
	b := r.head
	if b != nil {
		r.head = b.next
		b.next = nil
	}
	r.mu.Unlock()
	r.cursor = cursor{batch: b}
	return b != nil
}

// sleepIdle waits for a batch or for Close; false when closed.
func (r *Reader) sleepIdle() bool {
	r.mu.Lock()
	if r.head != nil || r.call != nil {
		r.mu.Unlock()
		return true
	}
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.sleep = sleepIdle
	r.mu.Unlock()
	<-r.kick
	return true
}

// wait blocks in the backend. Submit wakes it only when a new batch could be started: every earlier one is, and an op is idle.
func (r *Reader) wait() int {
	if r.cursor.batch == nil && len(r.idle) > 0 {
		r.mu.Lock()
		if r.head != nil {
			r.mu.Unlock()
			return 0
		}
		r.sleep = sleepBusy
		r.mu.Unlock()
	}
	n := r.backend.wait(r.results)
	r.mu.Lock()
	r.sleep = awake
	r.mu.Unlock()
	return n
}

// end takes one ended read.
func (r *Reader) end(res result) {
	o := &r.ops[res.op]
	if r.finish(o, res.res) {
		r.backend.start(int(res.op))
		return
	}
	if o.buf != nil {
		r.plan.stage.give(o.buf)
	}
	b := o.batch
	o.batch, o.buf, o.iovs = nil, nil, nil
	clear(o.iov[:]) // forget foreign memory
	r.idle = append(r.idle, res.op)
	if len(r.idle) == r.depth {
		r.stats.busy.Add(int64(time.Since(r.stats.start)) - r.stats.since.Swap(0))
	}
	b.inflight--
	r.complete(b)
}

// begin notes that reads are in flight from now on.
func (r *Reader) begin() {
	if r.stats.since.Load() == 0 {
		r.stats.since.Store(max(int64(time.Since(r.stats.start)), 1))
	}
}

// complete hands a batch back once its last read has ended.
func (r *Reader) complete(b *Batch) {
	if !b.planned || b.inflight > 0 {
		return
	}
	r.mu.Lock()
	b.pending = false
	r.mu.Unlock()
	r.cond.Broadcast()
}
