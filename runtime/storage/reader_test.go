package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

var backends = []string{"uring", "pread"}

// TestRandomLists reads random lists in every combination of settings: the bytes are the file's, nothing else is touched.
func TestRandomLists(t *testing.T) {
	const size = 3<<20 + 777 // ends inside a block
	path := makeFile(t, t.TempDir(), size)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, backend := range backends {
		for _, direct := range []string{"require", "off"} {
			for _, depth := range []int{1, 4, 256} {
				for _, staging := range []int{1, 25088, 64 * 25088} {
					for _, gap := range []int{0, 16 << 10} {
						o := Options{Backend: backend, Direct: direct, QueueDepth: depth, Staging: staging, Gap: gap}
						name := fmt.Sprintf("%s-%s-qd%d-staging%d-gap%d", backend, direct, depth, staging, gap)
						t.Run(name, func(t *testing.T) { readLists(t, path, o, seed) })
					}
				}
			}
		}
	}
}

func readLists(t *testing.T, path string, o Options, seed uint64) {
	r := mustOpen(t, path, o)
	if got := r.Info(); got.Backend != o.Backend || got.Direct != (o.Direct == "require") {
		t.Fatalf("opened as %+v, want %s %s", got, o.Backend, o.Direct)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(o.QueueDepth)))
	const rounds = 6
	var batches [rounds]Batch
	var mems [rounds][]byte
	for i := range batches { // all in flight at once
		items, lens := randomItems(rng, r.Size())
		mem, free, err := AllocAligned(total(lens))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free)
		carve(mem, items, lens, rng.IntN(2) == 0)
		mems[i] = mem
		batches[i] = Batch{Items: items, InPlace: rng.IntN(2) == 0}
		r.Submit(&batches[i])
	}
	for _, i := range rng.Perm(rounds) {
		b := &batches[i]
		if err := r.Wait(b); err != nil {
			t.Fatal(err)
		}
		for k := range b.Items {
			if !b.Done[k] {
				t.Fatalf("item %d of %d is not done", k, len(b.Items))
			}
		}
		if err := checkMem(mems[i], b); err != nil {
			t.Fatal(err)
		}
	}
	s := r.Stats()
	var wanted int64
	for i := range batches {
		for _, it := range batches[i].Items {
			wanted += int64(len(it.Dst))
		}
	}
	if s.Wanted != wanted || s.Busy <= 0 {
		t.Errorf("stats %+v, wanted bytes were %d", s, wanted)
	}
}

// TestColdStart is a first token: thousands of separate ranges against a short queue, then all others, then none.
func TestColdStart(t *testing.T) {
	const stride, neurons, layers = 12800, 2048, 3 // hidden 2,048: 12 KiB of rows and a trailer
	path := makeFile(t, t.TempDir(), 4096+layers*neurons*stride)
	for _, backend := range backends {
		for _, depth := range []int{4, 256} {
			for _, staging := range []int{stride, 64 * stride} {
				t.Run(fmt.Sprintf("%s-qd%d-staging%d", backend, depth, staging), func(t *testing.T) {
					r := mustOpen(t, path, Options{Backend: backend, QueueDepth: depth, Staging: staging})
					mem := make([]byte, layers*neurons/2*stride)
					want := make([]byte, stride)
					for parity := range 2 {
						var batches [layers]Batch
						clear(mem)
						for l := range batches {
							b := &batches[l]
							for i := range neurons / 2 {
								n := 2*i + parity
								b.Items = append(b.Items, Item{int64(4096 + (l*neurons+n)*stride), mem[(l*neurons/2+i)*stride:][:stride]})
							}
							r.Submit(b)
						}
						for l := range batches {
							if err := r.Wait(&batches[l]); err != nil {
								t.Fatal(err)
							}
							for i, it := range batches[l].Items {
								if fill(want, it.Off); !batches[l].Done[i] || !bytes.Equal(it.Dst, want) {
									t.Fatalf("layer %d item %d: wrong bytes", l, i)
								}
							}
						}
					}
					before := r.Stats()
					if want := int64(layers * neurons); before.Reads < want {
						t.Errorf("%d reads, want at least %d separate ones", before.Reads, want)
					}
					empty := Batch{}
					r.Submit(&empty)
					if err := r.Wait(&empty); err != nil {
						t.Fatal(err)
					}
					if after := r.Stats(); after.Reads != before.Reads {
						t.Error("an empty batch read something")
					}
				})
			}
		}
	}
}

// TestJoining counts reads: neighbours and small gaps are joined, large gaps are not, and nothing is longer than MaxRead.
func TestJoining(t *testing.T) {
	path := makeFile(t, t.TempDir(), 8<<20)
	for _, inPlace := range []bool{false, true} {
		mem, free, err := AllocAligned(8 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer free()
		list := func(n, length, step int) []Item {
			items := make([]Item, n)
			for i := range items {
				items[i] = Item{int64(i * step), mem[i*length:][:length]}
			}
			return items
		}
		for _, c := range []struct {
			name  string
			o     Options
			items []Item
			reads int64
			bytes int64
		}{
			{"adjacent", Options{}, list(8, 8192, 8192), 1, 8 * 8192},
			{"gap 0 joins no gap", Options{}, list(8, 8192, 16384), 8, 8 * 8192},
			{"gap small enough", Options{Gap: 8192}, list(8, 8192, 16384), 1, 15 * 8192},
			{"gap one block too large", Options{Gap: 8192 - 512}, list(8, 8192, 16384), 8, 8 * 8192},
			{"max read", Options{MaxRead: 64 << 10}, list(32, 8192, 8192), 4, 32 * 8192},
			{"long item", Options{MaxRead: 256 << 10, Staging: 4 << 20}, list(1, 1<<20, 0), 4, 1 << 20},
		} {
			t.Run(fmt.Sprintf("%s/inplace=%v", c.name, inPlace), func(t *testing.T) {
				r := mustOpen(t, path, c.o)
				before := r.Stats()
				b := &Batch{Items: c.items, InPlace: inPlace}
				r.Submit(b)
				if err := r.Wait(b); err != nil {
					t.Fatal(err)
				}
				s := r.Stats()
				if got := s.Reads - before.Reads; got != c.reads {
					t.Errorf("%d reads, want %d", got, c.reads)
				}
				if got := s.Bytes - before.Bytes; got != c.bytes {
					t.Errorf("%d bytes, want %d", got, c.bytes)
				}
			})
		}
	}
}

// TestTruncatedFile shortens the file under an open reader: what is still there arrives, the rest fails by name, and the next
// batch is served.
func TestTruncatedFile(t *testing.T) {
	for _, backend := range backends {
		for _, direct := range []string{"require", "off"} {
			for _, inPlace := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%s-%v", backend, direct, inPlace), func(t *testing.T) {
					path := makeFile(t, t.TempDir(), 1<<20)
					r := mustOpen(t, path, Options{Backend: backend, Direct: direct, QueueDepth: 4})
					const cut = 600<<10 + 300
					if err := os.Truncate(path, cut); err != nil {
						t.Fatal(err)
					}
					mem := make([]byte, 100*9000)
					b := &Batch{InPlace: inPlace}
					for i := range 100 {
						b.Items = append(b.Items, Item{int64(i * 10000), mem[i*9000:][:9000]})
					}
					blank(mem)
					after := &Batch{Items: []Item{{1000, make([]byte, 100)}}}
					r.Submit(b)
					r.Submit(after)
					err := r.Wait(b)
					if !errors.Is(err, format.ErrIO) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "at offset 6") {
						t.Errorf("error %v, want an i/o error that names the file and the offset", err)
					}
					for i, it := range b.Items {
						if whole := it.Off+9000 <= cut; b.Done[i] && !whole {
							t.Errorf("item %d lies beyond the end and is done", i)
						} else if whole && !b.Done[i] && it.Off+9000 < cut-64<<10 && backend == "pread" && direct == "off" {
							t.Errorf("item %d is there and not done", i)
						}
					}
					if !inPlace {
						if err := checkMem(mem, b); err != nil {
							t.Error(err)
						}
					}
					if err := r.Wait(after); err != nil || !after.Done[0] {
						t.Errorf("the batch after: %v", err)
					}
				})
			}
		}
	}
}

// TestOutside refuses ranges that are none of the file's before reading, also such that overflow.
func TestOutside(t *testing.T) {
	path := makeFile(t, t.TempDir(), 100000)
	r := mustOpen(t, path, Options{})
	for _, off := range []int64{-1, -1 << 63, 99999, 100000, 100001, 1 << 40, 1<<63 - 1, 1<<63 - 512} {
		b := &Batch{Items: []Item{{0, make([]byte, 10)}, {off, make([]byte, 2)}, {500, make([]byte, 2)}}}
		r.Submit(b)
		err := r.Wait(b)
		if !errors.Is(err, format.ErrIO) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", off)) {
			t.Errorf("offset %d: %v", off, err)
		}
		if !b.Done[0] || b.Done[1] || b.Done[2] {
			t.Errorf("offset %d: done %v", off, b.Done)
		}
	}
	b := &Batch{Items: []Item{{99990, make([]byte, 10)}, {100000, nil}}}
	r.Submit(b)
	if err := r.Wait(b); err != nil || !b.Done[0] || !b.Done[1] {
		t.Errorf("the last bytes: %v %v", err, b.Done)
	}
}

func TestClose(t *testing.T) {
	path := makeFile(t, t.TempDir(), 4<<20)
	for _, backend := range backends {
		r, err := Open(path, Options{Backend: backend, QueueDepth: 2})
		if err != nil {
			t.Fatal(err)
		}
		var batches [50]Batch
		mem := make([]byte, len(batches)*5000)
		for i := range batches {
			batches[i].Items = []Item{{int64(i * 50000), mem[i*5000:][:5000]}}
			r.Submit(&batches[i])
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			if err := r.Wait(&batches[i]); err != nil || !batches[i].Done[0] {
				t.Fatalf("%s: batch %d was not served before the end: %v", backend, i, err)
			}
		}
		late := &Batch{Items: []Item{{0, make([]byte, 1)}}}
		r.Submit(late)
		if err := r.Wait(late); !errors.Is(err, format.ErrIO) || late.Done[0] {
			t.Errorf("%s: batch after close: %v", backend, err)
		}
		r.Close()
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := makeFile(t, dir, 1000)
	for _, c := range []struct {
		path string
		o    Options
		kind error
	}{
		{dir + "/absent", Options{}, format.ErrInput},
		{dir, Options{}, format.ErrInput},
		{path, Options{Backend: "threads"}, format.ErrInput},
		{path, Options{Direct: "yes"}, format.ErrInput},
		{path, Options{QueueDepth: -1}, format.ErrInput},
	} {
		r, err := Open(c.path, c.o)
		if err == nil {
			r.Close()
		}
		if !errors.Is(err, c.kind) {
			t.Errorf("%s %+v: %v", c.path, c.o, err)
		}
	}
}

// TestSmallFiles reads files shorter than a block, and an empty one.
func TestSmallFiles(t *testing.T) {
	dir := t.TempDir()
	for _, backend := range backends {
		for _, size := range []int{0, 1, 511, 512, 513, 4095} {
			r := mustOpen(t, makeFile(t, dir, size), Options{Backend: backend, Gap: -1})
			b := &Batch{Items: []Item{{0, make([]byte, size)}}, InPlace: true}
			r.Submit(b)
			if err := r.Wait(b); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			if fill(want, 0); !bytes.Equal(b.Items[0].Dst, want) {
				t.Errorf("%s: %d bytes: wrong", backend, size)
			}
		}
	}
}

// TestNoAllocation reads the same shape of batches again and again.
func TestNoAllocation(t *testing.T) {
	path := makeFile(t, t.TempDir(), 8<<20)
	for _, backend := range backends {
		r := mustOpen(t, path, Options{Backend: backend, QueueDepth: 32, Gap: 4096})
		rng := rand.New(rand.NewPCG(1, 2))
		mem := make([]byte, 4*64*25088)
		var batches [4]Batch
		for l := range batches {
			for i := range 64 {
				batches[l].Items = append(batches[l].Items, Item{Dst: mem[(l*64+i)*25088:][:25088]})
			}
		}
		step := func() {
			for l := range batches {
				off := int64(l) * 25088
				for i := range batches[l].Items {
					batches[l].Items[i].Off = off
					off += 25088 * int64(1+rng.IntN(4))
				}
				r.Submit(&batches[l])
			}
			for l := range batches {
				if err := r.Wait(&batches[l]); err != nil {
					t.Error(err)
				}
			}
		}
		for range 20 { // threads and wait records of the runtime come to be
			step()
		}
		if n := testing.AllocsPerRun(50, step); n != 0 {
			t.Errorf("%s: %v allocations per step", backend, n)
		}
	}
}

// TestKernelCounts holds Stats.Bytes against /proc/self/io. Others in the process may read too (a page of the program), so
// one exact round of five is asked for; never may the kernel have read less.
func TestKernelCounts(t *testing.T) {
	const size = 16<<20 + 1000
	path := makeFile(t, t.TempDir(), size)
	for _, backend := range backends {
		for _, gap := range []int{0, 32 << 10} {
			r := mustOpen(t, path, Options{Backend: backend, Direct: "require", Gap: gap})
			exact := false
			for round := range 5 {
				rng := rand.New(rand.NewPCG(uint64(round), 7))
				b := &Batch{InPlace: round%2 == 1}
				lens := []int{}
				for off := rng.Int64N(50000); off+25088 < size; off += 25088 * int64(1+rng.IntN(3)) {
					b.Items, lens = append(b.Items, Item{Off: off}), append(lens, 25088)
				}
				b.Items, lens = append(b.Items, Item{Off: size - 100}), append(lens, 100) // the tail
				mem, free, err := AllocAligned(total(lens))
				if err != nil {
					t.Fatal(err)
				}
				carve(mem, b.Items, lens, true)
				k0, s0 := kernelReadBytes(t), r.Stats().Bytes
				r.Submit(b)
				err = r.Wait(b)
				k1, s1 := kernelReadBytes(t), r.Stats().Bytes
				free()
				if err != nil {
					t.Fatal(err)
				}
				if k1-k0 < s1-s0 {
					t.Errorf("%s gap %d: counted %d bytes, the kernel %d", backend, gap, s1-s0, k1-k0)
				}
				exact = exact || k1-k0 == s1-s0
			}
			if !exact {
				t.Errorf("%s gap %d: never the kernel's count", backend, gap)
			}
		}
	}
}

func TestMeasuredGap(t *testing.T) {
	path := makeFile(t, t.TempDir(), probeFile+4096)
	r := mustOpen(t, path, Options{Gap: -1})
	if g := r.Info().Gap; g < 0 || g > maxMeasured || g%512 != 0 {
		t.Errorf("gap %d", g)
	}
	t.Logf("gap of this drive: %d bytes", r.Info().Gap)
	if s := r.Stats(); s.Wanted != 0 || s.Reads == 0 {
		t.Errorf("after the measurement: %+v", s)
	}
	if r := mustOpen(t, path, Options{Gap: -1, Direct: "off"}); r.Info().Gap != DefaultGap {
		t.Errorf("gap of the page cache: %d, want the default", r.Info().Gap)
	}
}

func TestDriveOf(t *testing.T) {
	d, err := DriveOf(t.TempDir())
	if err != nil || d.Device == "" {
		t.Errorf("%+v %v", d, err)
	}
	t.Logf("%+v", d)
	if d, err := DriveOf("/proc"); err != nil || d.Device != "proc" {
		t.Errorf("/proc: %+v %v", d, err)
	}
	if _, err := DriveOf("/absent"); !errors.Is(err, format.ErrInput) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("absent: %v", err)
	}
}
