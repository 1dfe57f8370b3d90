package kernels

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestPoolCoversEveryIterationOnce(t *testing.T) {
	for _, threads := range []int{0, 1, 2, 3, 8} {
		p := NewPool(threads)
		var pools = []*Pool{p}
		if threads == 0 {
			pools = append(pools, nil)
		}
		for _, p := range pools {
			for _, n := range []int{-1, 0, 1, 2, 3, 7, 16, 63, 64, 65, 1000, 4097} {
				for _, grain := range []int{0, 1, 3, 16, 64, 5000} {
					hits := make([]atomic.Int32, max(n, 0))
					p.Run(n, grain, func(lo, hi int) {
						if lo%max(grain, 1) != 0 || lo >= hi || hi > n || hi != n && hi%max(grain, 1) != 0 {
							t.Errorf("n %d grain %d: range %d..%d", n, grain, lo, hi)
						}
						for i := lo; i < hi; i++ {
							hits[i].Add(1)
						}
					})
					for i := range hits {
						if h := hits[i].Load(); h != 1 {
							t.Fatalf("%d threads, n %d, grain %d: iteration %d ran %d times", p.Threads(), n, grain, i, h)
						}
					}
				}
			}
		}
		p.Close()
	}
}

func TestPoolThreads(t *testing.T) {
	if got := (*Pool)(nil).Threads(); got != 1 {
		t.Errorf("nil pool: %d threads", got)
	}
	for _, n := range []int{1, 2, 5} {
		p := NewPool(n)
		if p.Threads() != n || Threads(n) != n {
			t.Errorf("wanted %d threads, got %d and %d", n, p.Threads(), Threads(n))
		}
		p.Close()
	}
	for _, n := range []int{0, -3} {
		p := NewPool(n)
		if want := runtime.GOMAXPROCS(0); p.Threads() != want || Threads(n) != want {
			t.Errorf("default is %d threads, want %d", p.Threads(), want)
		}
		p.Close()
	}
}

// Several threads must really take part, or every figure is of one thread: each iteration waits for the others.
func TestPoolRunsInParallel(t *testing.T) {
	const threads = 3
	p := NewPool(threads)
	defer p.Close()
	for range 50 {
		var met sync.WaitGroup
		met.Add(threads)
		p.Run(threads, 1, func(lo, hi int) {
			if hi-lo != 1 {
				t.Errorf("range %d..%d", lo, hi)
			}
			met.Done()
			met.Wait()
		})
	}
}

// Runs in quick succession and after pauses long enough for workers to park; the sum of plain writes shows that a
// Run's effects are there when it returns (and -race that it is not by luck).
func TestPoolSequence(t *testing.T) {
	p := NewPool(4)
	defer p.Close()
	data := make([]int, 257)
	for round := range 2000 {
		if round%200 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
		p.Run(len(data), 1, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				data[i]++
			}
		})
		if data[round%257] != round+1 {
			t.Fatalf("round %d: %d", round, data[round%257])
		}
	}
}

func TestPoolNestedAndConcurrentRuns(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var total atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 200 {
				p.Run(8, 1, func(lo, hi int) {
					for range hi - lo {
						p.Run(5, 1, func(lo, hi int) { total.Add(int64(hi - lo)) })
					}
				})
			}
		})
	}
	callers.Wait()
	if got, want := total.Load(), int64(4*200*8*5); got != want {
		t.Fatalf("%d iterations, want %d", got, want)
	}
}

func TestPoolClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for threads := range 5 {
		for _, idle := range []time.Duration{0, 3 * time.Millisecond} {
			p := NewPool(threads)
			n := 0
			p.Run(1, 1, func(lo, hi int) { n += hi - lo })
			time.Sleep(idle)
			p.Close()
			p.Close()
			p.Run(10, 1, func(lo, hi int) { n += hi - lo }) // inline now, so n needs no lock
			if n != 11 {
				t.Fatalf("%d iterations, want 11", n)
			}
		}
	}
	(*Pool)(nil).Close()
}

func TestPoolRunAllocatesNothing(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var n atomic.Int64
	f := func(lo, hi int) { n.Add(int64(hi - lo)) }
	if got := testing.AllocsPerRun(200, func() { p.Run(100, 1, f) }); got >= 1 {
		t.Fatalf("%v allocations per Run", got)
	}
	if n.Load() != 201*100 {
		t.Fatalf("%d iterations", n.Load())
	}
}

func BenchmarkPoolRun(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := NewPool(threads)
			defer p.Close()
			var n atomic.Int64
			f := func(lo, hi int) { n.Add(1) }
			for b.Loop() {
				p.Run(2, 1, f)
			}
		})
	}
}
