package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// scripted is a backend that really reads, but when, how much and with what luck the test decides.
type scripted struct {
	mu      sync.Mutex
	cond    sync.Cond
	fd      int
	ops     []op
	queue   []int32 // started, in order
	allowed int     // how many more may end; < 0: all
	woken   bool
	fate    func(o *op) int32 // 0: read as asked; > 0: read at most this much; < 0: end with it
	pick    func(n int) int   // which of n queued reads ends next

	starts   []int64 // offsets in order of start
	inflight int
	most     int
}

func (s *scripted) start(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, int32(i))
	s.starts = append(s.starts, s.ops[i].pos())
	s.inflight++
	s.most = max(s.most, s.inflight)
}

func (s *scripted) wait(results []result) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.woken && (len(s.queue) == 0 || s.allowed == 0) {
		s.cond.Wait()
	}
	if s.woken {
		s.woken = false
		return 0
	}
	k := s.pick(len(s.queue))
	i := s.queue[k]
	s.queue = slices.Delete(s.queue, k, k+1)
	s.allowed--
	s.inflight--
	o := &s.ops[i]
	limit := s.fate(o)
	if limit < 0 {
		results[0] = result{i, limit}
		return 1
	}
	n := preadv(s.fd, o)
	if limit > 0 && n > limit {
		n = limit
	}
	results[0] = result{i, n}
	return 1
}

func (s *scripted) wake() {
	s.mu.Lock()
	s.woken = true
	s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *scripted) allow(n int) {
	s.mu.Lock()
	s.allowed = n
	s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *scripted) close() {}

func openScripted(t *testing.T, path string, o Options) (*Reader, *scripted) {
	t.Helper()
	s := &scripted{allowed: -1, fate: func(*op) int32 { return 0 }, pick: func(int) int { return 0 }}
	s.cond.L = &s.mu
	r, err := open(path, o, func(r *Reader) {
		s.fd, s.ops = r.file.fd, r.ops
		r.backend = s
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.allow(-1)
		r.Close()
	})
	return r, s
}

// TestOrder holds every read back, submits three batches and lets reads end one by one: batches start in order, and each is
// done with its own last read while later ones are in flight.
func TestOrder(t *testing.T) {
	path := makeFile(t, t.TempDir(), 4<<20)
	r, s := openScripted(t, path, Options{QueueDepth: 6})
	s.allow(0)
	const each = 4
	var batches [3]Batch
	for l := range batches {
		for i := range each {
			batches[l].Items = append(batches[l].Items, Item{int64(3<<20 - l<<20 + i*50000), make([]byte, 9000)})
		}
		r.Submit(&batches[l])
	}
	for l := range batches {
		s.allow(each)
		if err := r.Wait(&batches[l]); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		for later := l + 1; later < len(batches); later++ {
			if !batches[later].pending {
				t.Errorf("batch %d is done before it could be", later)
			}
		}
		r.mu.Unlock()
	}
	var want []int64
	for l := range batches {
		for _, it := range batches[l].Items {
			want = append(want, it.Off&^int64(r.Info().Align-1))
		}
	}
	if !slices.Equal(s.starts, want) {
		t.Errorf("started %v, want %v", s.starts, want)
	}
	if s.most > 6 {
		t.Errorf("%d in flight, depth 6", s.most)
	}
}

// TestStartWhileBusy: a batch submitted while reads of an earlier one are in flight starts at once.
func TestStartWhileBusy(t *testing.T) {
	path := makeFile(t, t.TempDir(), 1<<20)
	r, s := openScripted(t, path, Options{QueueDepth: 4})
	s.allow(0)
	var batches [3]Batch
	for l := range batches {
		batches[l].Items = []Item{{int64(l * 50000), make([]byte, 100)}}
		r.Submit(&batches[l])
		for started := false; !started; runtime.Gosched() {
			s.mu.Lock()
			started = len(s.starts) == l+1
			s.mu.Unlock()
		}
	}
	s.allow(-1)
	for l := range batches {
		if err := r.Wait(&batches[l]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWake: a wait ends by wake alone, whether the wake comes before it or after, again and again.
func TestWake(t *testing.T) {
	path := makeFile(t, t.TempDir(), 1<<20)
	for _, name := range backends {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the ring's thread
			defer runtime.UnlockOSThread()
			f, err := openFile(path, "auto")
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			stage, err := newStaging(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			defer stage.free()
			ops := make([]op, 4)
			var b backend = newWorkers(f.fd, ops)
			if name == "uring" {
				b.close()
				if b, _, _, err = newURing(kernelCalls, f.fd, ops, stage.mem); err != nil {
					t.Fatal(err)
				}
			}
			defer b.close()
			results := make([]result, len(ops))
			for k := range 20 {
				if k%2 == 0 {
					b.wake()
				} else {
					go b.wake()
				}
				if n := b.wait(results); n != 0 {
					t.Fatalf("%d results, none was asked for", n)
				}
			}
		})
	}
}

// TestLuck ends reads in random order, short, with transient errors and with lasting ones. Good batches have every byte; bad
// ones say so, their flags are true, and what is not done is untouched; the batches behind them are served.
func TestLuck(t *testing.T) {
	const size = 2<<20 + 300
	path := makeFile(t, t.TempDir(), size)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for round := range 40 {
		o := Options{
			QueueDepth: 1 + rng.IntN(20),
			Staging:    []int{1, 100 << 10, 4 << 20}[rng.IntN(3)],
			Gap:        rng.IntN(2) * 8192,
			Direct:     []string{"require", "off"}[rng.IntN(2)],
		}
		r, s := openScripted(t, path, o)
		bad := int64(-1)
		if round%2 == 1 {
			bad = rng.Int64N(size)
		}
		luck := rand.New(rand.NewPCG(seed, uint64(100+round))) // the loop's own
		s.pick = func(n int) int { return luck.IntN(n) }
		s.fate = func(o *op) int32 {
			switch lo := o.pos(); {
			case lo <= bad && bad < lo+int64(o.left()):
				return -int32(unix.EIO)
			case luck.IntN(4) == 0:
				return -int32([]syscall.Errno{unix.EAGAIN, unix.EINTR, unix.EBUSY}[luck.IntN(3)])
			case luck.IntN(3) == 0:
				return int32(4096 + luck.IntN(o.left()))
			}
			return 0
		}
		var batches [5]Batch
		var mems [5][]byte
		for i := range batches {
			items, lens := randomItems(rng, size)
			mem, free, err := AllocAligned(total(lens))
			if err != nil {
				t.Fatal(err)
			}
			defer free()
			carve(mem, items, lens, rng.IntN(2) == 0)
			batches[i], mems[i] = Batch{Items: items, InPlace: rng.IntN(2) == 0}, mem
			r.Submit(&batches[i])
		}
		for i := range batches {
			b := &batches[i]
			err := r.Wait(b)
			if err != nil && (bad < 0 || !errors.Is(err, unix.EIO) || !errors.Is(err, format.ErrIO) || !strings.Contains(err.Error(), path)) {
				t.Fatal(err)
			}
			whole := true
			for k, it := range b.Items {
				if b.Done[k] && it.Off <= bad && bad < it.Off+int64(len(it.Dst)) {
					t.Fatalf("item %d holds the bad byte and is done", k)
				}
				whole = whole && b.Done[k]
				if b.Done[k] {
					want := make([]byte, len(it.Dst))
					if fill(want, it.Off); string(want) != string(it.Dst) {
						t.Fatalf("item %d is done with wrong bytes", k)
					}
				}
			}
			if whole != (err == nil) {
				t.Fatalf("all done is %v, error %v", whole, err)
			}
			if err != nil && (b.InPlace || len(b.split) > 0) {
				continue // a failed item may be half there
			}
			if err := checkMem(mems[i], b); err != nil {
				t.Fatal(err)
			}
		}
		s.allow(-1)
		r.Close()
	}
}

// TestErrorText: one line with the file, the offset and what the system said; the lowest offset wins whatever ends first.
func TestErrorText(t *testing.T) {
	path := makeFile(t, t.TempDir(), 1<<20)
	r, s := openScripted(t, path, Options{QueueDepth: 8})
	s.pick = func(n int) int { return n - 1 }
	s.fate = func(*op) int32 { return -int32(unix.EIO) }
	s.allow(0)
	b := &Batch{}
	for i := range 8 {
		b.Items = append(b.Items, Item{int64(4096 + i*65536), make([]byte, 4096)})
	}
	r.Submit(b)
	for { // let all start, so that which fails first is the script's choice
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n == 8 {
			break
		}
		runtime.Gosched()
	}
	s.allow(-1)
	want := fmt.Sprintf("read %s at offset 4096 (4096 bytes): input/output error", path)
	if err := r.Wait(b); err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

// TestTransientForever: a read that is only ever put off fails in the end.
func TestTransientForever(t *testing.T) {
	path := makeFile(t, t.TempDir(), 1<<20)
	r, s := openScripted(t, path, Options{})
	s.fate = func(*op) int32 { return -int32(unix.EAGAIN) }
	b := &Batch{Items: []Item{{0, make([]byte, 10)}}}
	r.Submit(b)
	if err := r.Wait(b); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("error %v", err)
	}
}
