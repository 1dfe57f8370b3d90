package engine

import (
	"sync/atomic"
	"time"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/storage"
)

// streamBuffers is how many chunks are held: one being computed, the others being read. In stream mode they are what the drive
// reads ahead while the rows in memory of the next layer compute.
func streamBuffers(mode string) int {
	if mode == ModeStream {
		return 8
	}
	return 3
}

// chunkNeurons is how many records are read at a time; a multiple of model.MLPChunk unless the layer is smaller.
func chunkNeurons(g bundle.Geometry) int { return min(model.MLPChunk, g.Neurons) }

// chunkBytes is the length of one stream buffer: a chunk rounded up to the page, as the last chunk of a layer is read
// up to the end of its block.
func chunkBytes(g bundle.Geometry) int {
	return int((int64(chunkNeurons(g))*int64(g.Stride) + bundle.HeaderSize - 1) / bundle.HeaderSize * bundle.HeaderSize)
}

// streamer reads the rows [from, to) of layers in order, chunk by chunk, ahead of their use: pass after pass over the same layers. The
// caller takes exactly one pass of chunks per pass; after an error it must call stop before anything else. Damage anywhere
// is an error: no row is computed with that does not match its checksum.
type streamer struct {
	r       *storage.Reader
	g       bundle.Geometry
	layers  []int
	from    int    // first row of a layer
	to      int    // behind the last
	mem     []byte // all buffers
	bufs    [][]byte
	halves  [][]uint16
	batches []storage.Batch
	taken   int // chunks handed out
	sent    int // chunks submitted
	limit   int // chunks to submit in all, < 0 for no end
	wait    time.Duration
	free    func()

	// The check of a chunk's records, on all threads: the closure is made once and reads its arguments from here.
	pool         *kernels.Pool
	check        func(layer, neuron int, rec []byte) error
	layer, first int
	damaged      atomic.Int32 // lowest record of the chunk that is not good
	runCheck     func(lo, hi int)
}

// rows says what is read from now on. Nothing may be in flight.
func (s *streamer) rows(layers []int, from, to int) { s.layers, s.from, s.to = layers, from, to }

// newStreamer makes a streamer of nothing yet, with that many buffers, whose every record passes check before it is handed out.
func newStreamer(r *storage.Reader, g bundle.Geometry, buffers int, pool *kernels.Pool, check func(layer, neuron int, rec []byte) error) (*streamer, error) {
	s := &streamer{r: r, g: g, batches: make([]storage.Batch, buffers), pool: pool, check: check}
	s.runCheck = s.checkRecords
	size := chunkBytes(g)
	mem, free, err := storage.AllocAligned(size * buffers)
	if err != nil {
		return nil, err
	}
	s.mem, s.free = mem, free
	for i := range s.batches {
		b := mem[i*size : (i+1)*size : (i+1)*size]
		s.bufs = append(s.bufs, b)
		s.halves = append(s.halves, kernels.BytesU16(b))
		s.batches[i].Items = make([]storage.Item, 1)
		s.batches[i].Done, s.batches[i].InPlace = make([]bool, 1), true
	}
	return s, nil
}

func (s *streamer) perLayer() int { return (s.to - s.from + chunkNeurons(s.g) - 1) / chunkNeurons(s.g) }

// total is the number of chunks of a pass.
func (s *streamer) total() int { return len(s.layers) * s.perLayer() }

// start allows passes more passes to be read; passes < 0 reads ahead without end.
func (s *streamer) start(passes int) {
	if passes < 0 {
		s.limit = -1
	} else {
		s.limit = s.taken + passes*s.total()
	}
	s.fill(len(s.batches))
}

// fill submits chunks until inFlight of them are out, counting the one in the caller's hands.
func (s *streamer) fill(inFlight int) {
	for s.total() > 0 && s.sent-s.taken < inFlight && (s.limit < 0 || s.sent < s.limit) {
		layer, first, n := s.chunk(s.sent)
		b := &s.batches[s.sent%len(s.batches)]
		length := n * s.g.Stride
		if first+n == s.g.Neurons { // the padding behind a layer keeps the read aligned on any sector size
			length = int(s.g.LayerStride - int64(first)*int64(s.g.Stride))
			length = min(length, chunkBytes(s.g))
		}
		b.Items[0] = storage.Item{Off: s.g.RecordOffset(layer, first), Dst: s.bufs[s.sent%len(s.batches)][:length]}
		s.r.Submit(b)
		s.sent++
	}
}

// chunk says what the i-th chunk since the beginning is.
func (s *streamer) chunk(i int) (layer, first, n int) {
	i %= s.total()
	layer = s.layers[i/s.perLayer()]
	first = s.from + i%s.perLayer()*chunkNeurons(s.g)
	return layer, first, min(chunkNeurons(s.g), s.to-first)
}

// next waits for the next chunk and checks its records. The view is valid until the following call.
func (s *streamer) next() (layer, first int, rows model.Rows, err error) {
	s.fill(len(s.batches)) // the chunk handed out last is free again
	i := s.taken
	layer, first, n := s.chunk(i)
	t := time.Now()
	err = s.r.Wait(&s.batches[i%len(s.batches)])
	s.wait += time.Since(t)
	if err != nil {
		return layer, first, rows, rowError(layer, first, err)
	}
	s.taken++
	s.layer, s.first = layer, first
	s.damaged.Store(int32(n))
	s.pool.Run(n, checkGrain, s.runCheck)
	if i := int(s.damaged.Load()); i < n {
		return layer, first, rows, s.check(layer, first+i, s.record(i))
	}
	return layer, first, model.Rows{Mem: s.halves[i%len(s.batches)], Stride: s.g.Stride / 2, N: n}, nil
}

// checkGrain is how many records are checked at a time: enough bytes to be worth a hand-over between threads.
const checkGrain = 16

// checkRecords notes the first damaged one of the records [lo, hi) of the chunk in hand.
func (s *streamer) checkRecords(lo, hi int) {
	for i := lo; i < hi; i++ {
		if s.check(s.layer, s.first+i, s.record(i)) == nil {
			continue
		}
		for {
			old := s.damaged.Load()
			if int32(i) >= old || s.damaged.CompareAndSwap(old, int32(i)) {
				return
			}
		}
	}
}

// record is the i-th record, as in the file, of the chunk that next took last.
func (s *streamer) record(i int) []byte {
	return s.bufs[(s.taken-1)%len(s.batches)][i*s.g.Stride : (i+1)*s.g.Stride]
}

// stop waits for what is in flight and goes back to the first chunk of a pass.
func (s *streamer) stop() {
	for i := s.taken; i < s.sent; i++ {
		_ = s.r.Wait(&s.batches[i%len(s.batches)]) // the data is not used
	}
	s.taken, s.sent, s.limit = 0, 0, 0
}
