package storage

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// Benchmarks read a file of 512 MiB that they make in the temporary folder, or the file that NP_BENCH_FILE names.

const record = 25088 // hidden 4,096 in float16: 24 KiB of rows and 512 bytes of trailer

func benchFile(b *testing.B) string {
	if path := os.Getenv("NP_BENCH_FILE"); path != "" {
		return path
	}
	return makeFile(b, b.TempDir(), 512<<20)
}

// randomReader keeps three batches of 512 random records queued, each batch ascending as a layer's delta is.
type randomReader struct {
	r       *Reader
	batches [3]Batch
	rng     *rand.Rand
	next    int
}

func newRandomReader(r *Reader, inPlace bool) *randomReader {
	x := &randomReader{r: r, rng: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	for k := range x.batches {
		mem, _, err := AllocAligned(512 * record)
		if err != nil {
			panic(err)
		}
		x.batches[k].InPlace = inPlace
		for i := range 512 {
			x.batches[k].Items = append(x.batches[k].Items, Item{Dst: mem[i*record:][:record]})
		}
		x.submit(k)
	}
	return x
}

func (x *randomReader) submit(k int) {
	items := x.batches[k].Items
	for i := range items {
		items[i].Off = x.rng.Int64N(x.r.Size()/record) * record
	}
	slices.SortFunc(items, func(a, b Item) int { return int(a.Off - b.Off) })
	x.r.Submit(&x.batches[k])
}

// step waits for the oldest batch and queues another; bytes wanted.
func (x *randomReader) step() (int, error) {
	b := &x.batches[x.next]
	if err := x.r.Wait(b); err != nil {
		return 0, err
	}
	x.submit(x.next)
	x.next = (x.next + 1) % len(x.batches)
	return len(b.Items) * record, nil
}

func BenchmarkRandomRecords(b *testing.B) {
	path := benchFile(b)
	for _, backend := range backends {
		for _, inPlace := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/inplace=%v", backend, inPlace), func(b *testing.B) {
				r := mustOpen(b, path, Options{Backend: backend})
				x := newRandomReader(r, inPlace)
				b.SetBytes(512 * record)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := x.step(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkWholeLayers streams the file in pieces of a layer's size into aligned memory.
func BenchmarkWholeLayers(b *testing.B) {
	path := benchFile(b)
	for _, maxRead := range []int{256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("uring/maxread=%dKiB", maxRead>>10), func(b *testing.B) {
			r := mustOpen(b, path, Options{MaxRead: maxRead})
			mem, free, err := AllocAligned(64 << 20)
			if err != nil {
				b.Fatal(err)
			}
			defer free()
			batch := &Batch{Items: []Item{{0, mem}}, InPlace: true}
			b.SetBytes(64 << 20)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				batch.Items[0].Off = i % (r.Size() / (64 << 20)) * (64 << 20)
				r.Submit(batch)
				if err := r.Wait(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVersusFio runs fio and this package in turn, same file, block size, depth and time, and reports the ratio.
func BenchmarkVersusFio(b *testing.B) {
	if _, err := exec.LookPath("fio"); err != nil {
		b.Skip("NO FIO: THE DRIVE'S OWN SPEED IS NOT MEASURED HERE")
	}
	path := benchFile(b)
	const spell = 2 * time.Second
	var ours, theirs float64
	for b.Loop() {
		r := mustOpen(b, path, Options{})
		x := newRandomReader(r, false)
		start, n := time.Now(), 0
		for time.Since(start) < spell {
			k, err := x.step()
			if err != nil {
				b.Fatal(err)
			}
			n += k
		}
		ours += float64(n) / time.Since(start).Seconds()
		r.Close()
		theirs += fio(b, path, spell)
	}
	runs := float64(b.N)
	b.ReportMetric(ours/runs/1e9, "GB/s")
	b.ReportMetric(theirs/runs/1e9, "fio-GB/s")
	b.ReportMetric(ours/theirs, "ratio")
}

// fio returns bytes per second of random reads.
func fio(b *testing.B, path string, spell time.Duration) float64 {
	out, err := exec.Command("fio", "--name=np", "--filename="+path, "--readonly", "--rw=randread", fmt.Sprintf("--bs=%d", record),
		"--iodepth=256", "--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles", "--norandommap", "--randrepeat=0",
		"--time_based", fmt.Sprintf("--runtime=%ds", int(spell.Seconds())), "--output-format=json").Output()
	if err != nil {
		b.Fatalf("fio: %v %s", err, out)
	}
	var rep struct {
		Jobs []struct {
			Read struct {
				Bytes float64 `json:"bw_bytes"`
			} `json:"read"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &rep); err != nil || len(rep.Jobs) == 0 {
		b.Fatalf("fio's report: %v %s", err, out)
	}
	return rep.Jobs[0].Read.Bytes
}
