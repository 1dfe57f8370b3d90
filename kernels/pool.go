package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Pool is a fixed set of worker goroutines for loops whose iterations are independent. The caller of Run takes part,
// so a pool of n threads keeps n-1 goroutines. Idle workers spin for some microseconds, because the next loop of a
// token follows at once, then park and cost nothing.
//
// A nil *Pool is valid and runs everything in the caller.
type Pool struct {
	threads int
	workers []worker
	exited  sync.WaitGroup

	busy  atomic.Bool   // a Run owns the fields below; another Run meanwhile works inline
	quit  atomic.Bool   // Close was called
	epoch atomic.Uint32 // counts jobs; a worker that sees it change tries to join

	// The job. Written by the owner of busy while closed and without members; read by members only.
	f     func(lo, hi int)
	n     int
	chunk int
	next  atomic.Int64 // first iteration that nobody has taken

	// members is the number of workers inside the job, plus jobOpen while more may join. The caller closes the job when
	// all chunks are taken, so a worker that wakes late neither delays the caller nor sees a half-written job.
	members atomic.Int32
	waiting atomic.Bool // the caller is parked on done
	done    chan struct{}
}

type worker struct {
	parked atomic.Bool
	wake   chan struct{} // capacity 1
	_      [48]byte      // keeps two workers off one cache line
}

const (
	jobOpen = 1 << 16

	// A wake-up through the scheduler costs 5 to 50 µs; spinning for about as long is never much worse than parking at
	// once. Each round checks once and pauses for some hundred nanoseconds; every spinYield rounds, other goroutines get a turn.
	spinRounds = 128
	spinYield  = 16

	// chunksPerThread balances loops when threads are slowed down unevenly, as by reads that the kernel completes on one of them.
	chunksPerThread = 16
)

// Threads turns a --threads value into a number of threads: n if positive, else what Go found usable here, which
// respects the affinity mask and the CPU quota of the control group.
func Threads(n int) int {
	if n > 0 {
		return min(n, jobOpen/2)
	}
	return runtime.GOMAXPROCS(0)
}

// NewPool starts a pool of Threads(threads) threads, the caller included.
func NewPool(threads int) *Pool {
	p := &Pool{threads: Threads(threads), done: make(chan struct{}, 1)}
	p.workers = make([]worker, p.threads-1)
	p.exited.Add(len(p.workers))
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		go p.work(&p.workers[i])
	}
	return p
}

// Threads is the number of threads that Run uses, the caller included; 1 for a nil pool.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return p.threads
}

// Run calls f on disjoint ranges that cover [0, n), each beginning at a multiple of grain, and returns when all are
// done. Which goroutine gets which range is open, so f must not care. A Run inside f, or while another goroutine's Run
// is under way, does its work in the calling goroutine. Run itself does not allocate.
func (p *Pool) Run(n, grain int, f func(lo, hi int)) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1)
	if p == nil || p.threads == 1 || n <= grain || !p.busy.CompareAndSwap(false, true) {
		f(0, n)
		return
	}
	if p.quit.Load() {
		p.busy.Store(false)
		f(0, n)
		return
	}
	grains := (n-1)/grain + 1
	p.f, p.n = f, n
	p.chunk = ((grains-1)/(p.threads*chunksPerThread) + 1) * grain
	p.next.Store(0)
	p.members.Store(jobOpen)
	p.epoch.Add(1)
	helpers := min(len(p.workers), (n-1)/p.chunk)
	for i := range p.workers[:helpers] {
		p.workers[i].unpark()
	}

	p.loop()

	if p.members.Add(-jobOpen) != 0 {
		p.wait()
	}
	p.f = nil
	p.busy.Store(false)
}

// loop takes chunks until none is left.
func (p *Pool) loop() {
	chunk, n := p.chunk, p.n
	for {
		lo := int(p.next.Add(int64(chunk))) - chunk
		if lo >= n {
			return
		}
		p.f(lo, min(lo+chunk, n))
	}
}

// wait returns when the last member of a closed job has left.
func (p *Pool) wait() {
	for i := 1; i <= spinRounds; i++ {
		if p.members.Load() == 0 {
			return
		}
		spin(i)
	}
	p.waiting.Store(true)
	if p.members.Load() == 0 && p.waiting.CompareAndSwap(true, false) {
		return // nobody left in between to wake this goroutine
	}
	<-p.done
}

// join makes the worker a member of the open job, if there is one.
func (p *Pool) join() bool {
	for {
		m := p.members.Load()
		if m&jobOpen == 0 {
			return false
		}
		if p.members.CompareAndSwap(m, m+1) {
			return true
		}
	}
}

func (p *Pool) work(w *worker) {
	defer p.exited.Done()
	var seen uint32
	for {
		seen = p.await(w, seen)
		if p.quit.Load() {
			return
		}
		if !p.join() {
			continue
		}
		p.loop()
		if p.members.Add(-1) == 0 && p.waiting.CompareAndSwap(true, false) {
			p.done <- struct{}{}
		}
	}
}

// await returns the job count when it differs from seen.
func (p *Pool) await(w *worker, seen uint32) uint32 {
	for i := 1; i <= spinRounds; i++ {
		if e := p.epoch.Load(); e != seen {
			return e
		}
		spin(i)
	}
	for {
		w.parked.Store(true)
		if e := p.epoch.Load(); e != seen {
			if !w.parked.CompareAndSwap(true, false) {
				<-w.wake // unpark was quicker; take its token
			}
			return e
		}
		<-w.wake
		if e := p.epoch.Load(); e != seen {
			return e
		}
	}
}

func (w *worker) unpark() {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
}

// spin passes one round of waiting.
func spin(round int) {
	if round%spinYield == 0 {
		runtime.Gosched()
		return
	}
	pause()
}

// Close ends the workers and returns when they are gone. It must not be called from inside Run; Run on a closed pool
// works inline. Closing twice, or a nil pool, does nothing.
func (p *Pool) Close() {
	if p == nil || p.quit.Swap(true) {
		return
	}
	for !p.busy.CompareAndSwap(false, true) {
		runtime.Gosched() // another goroutine's Run is finishing
	}
	p.epoch.Add(1)
	for i := range p.workers {
		p.workers[i].unpark()
	}
	p.busy.Store(false)
	p.exited.Wait()
}
