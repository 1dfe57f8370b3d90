package storage

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pattern is what test files hold, over and over. Its length is prime, so that a shift by any block or record shows.
var pattern = func() []byte {
	b := make([]byte, 1<<16-15)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}()

// fill writes what a test file holds at off.
func fill(b []byte, off int64) {
	for len(b) > 0 {
		n := copy(b, pattern[off%int64(len(pattern)):])
		b, off = b[n:], off+int64(n)
	}
}

// makeFile writes a file of that size under dir, really allocated and not in the page cache.
func makeFile(t testing.TB, dir string, size int) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("rows-%d.np", size))
	data := make([]byte, size)
	fill(data, 0)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return path
}

// mustOpen opens and closes with the test.
func mustOpen(t testing.TB, path string, o Options) *Reader {
	t.Helper()
	r, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

const canary = 0xa5

// dsts carves destinations for items from mem, canaries between them; aligned ones lie on 4096.
func carve(mem []byte, items []Item, lens []int, aligned bool) {
	at := 0
	for i := range items {
		if aligned {
			at = (at + 4095) &^ 4095
		} else {
			at += 1 + i%3
		}
		items[i].Dst = mem[at : at+lens[i] : at+lens[i]]
		at += lens[i]
	}
	blank(mem)
}

// blank fills memory with canaries.
func blank(mem []byte) { copy(mem, bytes.Repeat([]byte{canary}, len(mem))) }

// checkMem says whether every done item holds its bytes and everything else is untouched.
func checkMem(mem []byte, b *Batch) error {
	want := bytes.Repeat([]byte{canary}, len(mem))
	for i, it := range b.Items {
		if b.Done[i] && len(it.Dst) > 0 {
			at := int(address(it.Dst) - address(mem))
			fill(want[at:at+len(it.Dst)], it.Off)
		}
	}
	if !bytes.Equal(mem, want) {
		for i := range mem {
			if mem[i] != want[i] {
				return fmt.Errorf("memory differs at %d: %#x, want %#x", i, mem[i], want[i])
			}
		}
	}
	return nil
}

// randomItems makes a list of ranges of a file: adjacent ones, small and large gaps, ranges inside one block, the tail, empty ones,
// now and then a long one or one out of order.
func randomItems(rng *rand.Rand, size int64) ([]Item, []int) {
	n := rng.IntN(40)
	items, lens := make([]Item, 0, n), make([]int, 0, n)
	off := rng.Int64N(size)
	unit := []int64{1, 512, 4096}[rng.IntN(3)]
	for range n {
		length := int64([]int{0, 1, 100, 512, 4096, 25088, 8192, 70000, 300000}[rng.IntN(9)])
		if unit > 1 {
			length = (length + unit - 1) &^ (unit - 1)
			off = (off + unit - 1) &^ (unit - 1)
		}
		switch rng.IntN(12) {
		case 0:
			off = max(size-length, 0) // the tail
		case 1:
			off = rng.Int64N(size) &^ (unit - 1)
		}
		if off+length > size {
			off = rng.Int64N(max(size-length, 0)+1) &^ (unit - 1)
		}
		items, lens = append(items, Item{Off: off}), append(lens, int(length))
		off += length + []int64{0, 0, 1, 511, 512, 4096, 20000, 200000}[rng.IntN(8)]
	}
	if rng.IntN(3) > 0 {
		order := make([]int, len(items))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(items[a].Off - items[b].Off) })
		si, sl := make([]Item, len(items)), make([]int, len(items))
		for i, k := range order {
			si[i], sl[i] = items[k], lens[k]
		}
		items, lens = si, sl
	}
	return items, lens
}

// total is the memory that carve needs.
func total(lens []int) int {
	n := 4096
	for _, l := range lens {
		n += l + 8192
	}
	return n
}

// runJob reads random lists of the file with the job's seed and sums up what arrived. Without a failure the sum depends on seed
// and file only.
func runJob(job *helperJob, rep *helperReport) error {
	if job.Memlock >= 0 {
		lim := unix.Rlimit{Cur: uint64(job.Memlock), Max: uint64(job.Memlock)}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
			return err
		}
	}
	r, err := Open(job.Path, job.Options)
	if err != nil {
		return err
	}
	defer r.Close()
	rep.Info = r.Info()
	rng := rand.New(rand.NewPCG(job.Seed, 1))
	sum := fnv.New64a()
	for range 8 {
		items, lens := randomItems(rng, r.Size())
		mem, free, err := AllocAligned(total(lens))
		if err != nil {
			return err
		}
		carve(mem, items, lens, rng.IntN(2) == 0)
		b := &Batch{Items: items, InPlace: rng.IntN(2) == 0}
		r.Submit(b)
		if err := r.Wait(b); err != nil {
			return err
		}
		if err := checkMem(mem, b); err != nil {
			return err
		}
		for _, it := range items {
			sum.Write(it.Dst)
		}
		free()
	}
	rep.Sum = sum.Sum64()
	rep.Stats = r.Stats()
	return nil
}

// kernelReadBytes is what the kernel says this process has had read from drives.
func kernelReadBytes(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if v, ok := strings.CutPrefix(line, "read_bytes: "); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("/proc/self/io has no read_bytes")
	return 0
}
