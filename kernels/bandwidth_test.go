package kernels

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// coldElems is the working set of BenchmarkOfRead, in elements: 512 MiB, far
// above any last-level cache.
const coldElems = 256 << 20

// coldMemory is the working set, in huge pages where the system has them, as
// the engine allocates its records. NP_SMALL_PAGES=1 leaves it in small ones.
func coldMemory(b *testing.B) []uint16 {
	mem, err := syscall.Mmap(-1, 0, 2*coldElems, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(mem) })
	if os.Getenv("NP_SMALL_PAGES") == "" {
		_ = syscall.Madvise(mem, 14) // MADV_HUGEPAGE; a kernel without huge pages refuses it
	}
	w := BytesU16(mem)
	for i := range w {
		w[i] = uint16(0x2800 + i*7919%0x0fff)
	}
	return w
}

var sink atomic.Uint64

// readLines reads a word of every cache line, in four streams: what plain reads
// get the most with. mem is whole lines.
func readLines(mem []uint64) {
	var s0, s1, s2, s3 uint64
	q := len(mem) / 32 * 8
	a, b, c, d := mem[:q], mem[q:2*q], mem[2*q:3*q], mem[3*q:4*q]
	for i := 0; i < q; i += 8 {
		s0 += a[i]
		s1 += b[i]
		s2 += c[i]
		s3 += d[i]
	}
	for i := 4 * q; i < len(mem); i += 8 {
		s0 += mem[i]
	}
	sink.Add(s0 + s1 + s2 + s3)
}

// A coldRun is one shape of one kernel: parts that read mem one after the other.
type coldRun struct {
	b     *testing.B
	p     *Pool
	mem   []uint16
	parts int
	bytes int // read by a part
}

// measure runs the parts in turn and between them reads as many bytes far away
// in mem, both on all threads. It reports the medians and their ratio, which is
// what stays comparable on a machine that others use too.
func (c coldRun) measure(part func(i int)) {
	words := BytesU64(U16Bytes(c.mem))
	each := len(words) / c.parts &^ 7
	n := min(each, c.bytes/8&^7)
	var kernel, read []float64
	i := 0
	for c.b.Loop() {
		t := time.Now()
		part(i % c.parts)
		kernel = append(kernel, float64(c.bytes)/float64(time.Since(t)))
		from := words[(i+c.parts/2)%c.parts*each:][:n]
		t = time.Now()
		c.p.Run(n, ((n+c.p.Threads()-1)/c.p.Threads()+7)&^7, func(lo, hi int) { readLines(from[lo:hi]) })
		read = append(read, float64(8*n)/float64(time.Since(t)))
		i++
	}
	slices.Sort(kernel)
	slices.Sort(read)
	k, r := kernel[len(kernel)/2], read[len(read)/2]
	c.b.ReportMetric(0, "ns/op")
	c.b.ReportMetric(k, "GB/s")
	c.b.ReportMetric(r, "read-GB/s")
	c.b.ReportMetric(k/r, "of-read")
}

// coldRecords are the offsets of neuron records all over mem, in random order,
// in n parts.
func coldRecords(mem []uint16, h, n int) [][]int {
	stride := (3*h*2 + 16 + 511) / 512 * 256
	count := len(mem) / stride
	off := newRand(uint64(h)).Perm(count)
	for i := range off {
		off[i] *= stride
	}
	parts := make([][]int, n)
	for i := range parts {
		parts[i] = off[i*(count/n) : (i+1)*(count/n)]
	}
	return parts
}

// BenchmarkOfRead compares the bytes per second that kernels get from memory
// with those of plain reads, in the same run on the same threads, with the work
// split as the model splits it. Scores and WeightedSum are one layer's heads
// over 2048 positions; where heads share keys, those bytes count once. Tiled
// goes through 32 positions with all heads, then through the next 32.
func BenchmarkOfRead(b *testing.B) {
	p := NewPool(0)
	defer p.Close()
	mem := coldMemory(b)
	shapes := []int{576, 2048, 4096}
	for _, h := range shapes {
		const parts = 32
		rows, x := coldElems/parts/h, benchF32(h)
		dst := make([]float32, rows)
		b.Run(fmt.Sprintf("GemvF16/n=%d", h), func(b *testing.B) {
			coldRun{b, p, mem, parts, 2 * rows * h}.measure(func(i int) {
				w := mem[i*rows*h:][:rows*h]
				p.Run(rows, 16, func(lo, hi int) { GemvF16(dst[lo:hi], x, w[lo*h:hi*h], h) })
			})
		})
	}
	for _, h := range shapes {
		const parts = 16
		records := coldRecords(mem, h, parts)
		count := len(records[0])
		x, y, act, gate, up := benchF32(h), make([]float32, h), benchF32(count), make([]float32, count), make([]float32, count)
		b.Run(fmt.Sprintf("GateUpRows/H=%d", h), func(b *testing.B) {
			coldRun{b, p, mem, parts, 4 * count * h}.measure(func(i int) {
				off := records[i]
				p.Run(count, 16, func(lo, hi int) { GateUpRows(gate[lo:hi], up[lo:hi], x, mem, off[lo:hi]) })
			})
		})
		b.Run(fmt.Sprintf("DownRows/H=%d", h), func(b *testing.B) {
			coldRun{b, p, mem, parts, 2 * count * h}.measure(func(i int) {
				p.Run(h, h/p.Threads(), func(lo, hi int) { DownRows(y, act, mem, records[i], h, lo, hi) })
			})
		})
	}
	for _, s := range []struct{ n, heads, kv int }{{64, 9, 3}, {128, 32, 8}} {
		const tokens, tile = 2048, 32
		stride := s.n * s.kv
		layer, share := stride*tokens, s.heads/s.kv
		const parts = 32
		each := coldElems / layer / parts
		q, y, w := benchF32(s.n*s.heads), make([]float32, s.n*s.heads), benchF32(tokens*s.heads)
		for _, c := range []struct {
			name string
			step int
			f    func(k []uint16, head, lo, hi int)
		}{
			{"Scores", tokens, func(k []uint16, head, lo, hi int) {
				ScoresF16(w[head*tokens:][lo:hi], q[head*s.n:][:s.n], k, stride, 0.1)
			}},
			{"ScoresTiled", tile, func(k []uint16, head, lo, hi int) {
				ScoresF16(w[head*tokens:][lo:hi], q[head*s.n:][:s.n], k, stride, 0.1)
			}},
			{"WeightedSum", tokens, func(k []uint16, head, lo, hi int) {
				WeightedSumF16(y[head*s.n:][:s.n], w[head*tokens:][lo:hi], k, stride)
			}},
			{"WeightedSumTiled", tile, func(k []uint16, head, lo, hi int) {
				AddWeightedF16(y[head*s.n:][:s.n], w[head*tokens:][lo:hi], k, stride)
			}},
		} {
			grain := 1
			if c.step == tile {
				grain = (s.heads + p.Threads() - 1) / p.Threads()
			}
			b.Run(fmt.Sprintf("%s/n=%d/heads=%d/%d", c.name, s.n, s.heads, s.kv), func(b *testing.B) {
				coldRun{b, p, mem, parts, 2 * each * layer}.measure(func(i int) {
					for l := range each {
						k := mem[(i*each+l)*layer:][:layer]
						p.Run(s.heads, grain, func(lo, hi int) {
							for t := 0; t < tokens; t += c.step {
								for head := lo; head < hi; head++ {
									c.f(k[t*stride+head/share*s.n:], head, t, t+c.step)
								}
							}
						})
					}
				})
			})
		}
	}
}
