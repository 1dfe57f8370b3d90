package serve

import (
	"math"
	"slices"
	"sync"
	"time"
)

// queue is who waits for the worker, in order. Its places are taken before a request's body is read, so that bodies in
// memory are bounded too.
type queue struct {
	mu      sync.Mutex
	arrived sync.Cond
	jobs    []*job
	room    int // places left
	closed  bool
	perJob  float64 // seconds, a moving average
}

func newQueue(places int) *queue {
	q := &queue{room: places}
	q.arrived.L = &q.mu
	return q
}

// enter takes a place; without one it says in how many seconds to try again.
func (q *queue) enter() (ok bool, retry int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room == 0 {
		return false, int(min(max(1, math.Ceil(q.perJob)), 600))
	}
	q.room--
	return true, 0
}

// leave gives a place back.
func (q *queue) leave() {
	q.mu.Lock()
	q.room++
	q.mu.Unlock()
}

func (q *queue) put(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.jobs = append(q.jobs, j)
	q.arrived.Signal()
	return true
}

// take waits for the next job; nil after close.
func (q *queue) take() *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.closed {
		q.arrived.Wait()
	}
	if len(q.jobs) == 0 {
		return nil
	}
	j := q.jobs[0]
	q.jobs = slices.Delete(q.jobs, 0, 1)
	return j
}

// remove takes a job out that has not begun.
func (q *queue) remove(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.jobs, j)
	if i < 0 {
		return false
	}
	q.jobs = slices.Delete(q.jobs, i, i+1)
	return true
}

// close ends take once the jobs that wait are done.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.arrived.Broadcast()
	q.mu.Unlock()
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// took notes how long a job ran.
func (q *queue) took(d time.Duration) {
	q.mu.Lock()
	if q.perJob == 0 {
		q.perJob = d.Seconds()
	}
	q.perJob += 0.2 * (d.Seconds() - q.perJob)
	q.mu.Unlock()
}
