package kernels

import (
	"sync"
	"unsafe"
)

// The way of Goto and van de Geijn, and of BLIS, with one difference. C is cut into tiles of mr x nr, which the tile
// kernel holds in registers. A block of A, gemmMC x GemmKC, is packed into panels of mr rows and stays in the second
// level cache; gemmBCols columns of B are packed into panels of nr columns (and widened from float16) right before they
// are used, and one panel of them stays in the first level while the block of A passes by. Usually a whole block of B is
// packed at once and kept in the third level for all blocks of A; here B is a float16 weight matrix and A has some
// hundred rows: packing B again for every gemmMC rows costs some percent, and the memory for it would be the caller's.
//
// Rows and columns that complete a tile are packed as zeros and their results thrown away: every element of C takes the
// same way through the same instructions wherever it lies in a tile.

// gemmMC is the most rows of A that are packed at once: 264*256*4 bytes = 264 KiB, half of a common second level
// cache. It is a multiple of every mr.
const gemmMC = 264

// gemmBCols is how many columns of B are packed at once, 128 KiB in float32. One panel would do, but where B is
// row-major its rows are read 16 elements at a time then, each from another page. It is a multiple of every nr.
const gemmBCols = 128

// gemmMinCols is the width below which columns are not cut only to balance threads: each part packs A again.
const gemmMinCols = 256

// gemmKernel is one way to compute tiles.
type gemmKernel struct {
	mr, nr int

	// tile computes one mr x nr tile: c[i*ldc+j] = or += Σ_k a[k*mr+i]·b[k*nr+j], k ascending from 0 to kc-1. It
	// sums from zero in registers, then sets or adds once.
	tile func(kc int, a, b, c *float32, ldc int, add bool)

	// Packing, nil where packGeneric does it. See the assembly for what they do.
	transF32, transF16 func(dst *float32, dstStride int, rows *[8]unsafe.Pointer, n, ahead int)
	copyF32, copyF16   func(dst *float32, panelStride int, src unsafe.Pointer, srcStride, panels, groups, width, n int)
}

// Sizes of a scratch: what the largest kernel needs, and some elements for stores of 8 that begin inside a panel.
const (
	gemmMaxMR = 12
	gemmMaxNR = 32
	packSlack = 16
)

// gemmScratch is one thread's packing memory.
type gemmScratch struct {
	a    []float32 // panels of mr rows: (rows/mr, kc, mr)
	b    []float32 // panels of nr columns: (gemmBCols/nr, kc, nr)
	edge []float32 // one tile (mr, nr), for tiles that stick out of C
	rows [8]unsafe.Pointer
}

func newGemmScratch() *gemmScratch {
	return &gemmScratch{
		a:    alignedF32(gemmMC*GemmKC + packSlack),
		b:    alignedF32(GemmKC*gemmBCols + packSlack),
		edge: alignedF32(gemmMaxMR * gemmMaxNR),
	}
}

// alignedF32 makes n float32 that begin on a cache line.
func alignedF32(n int) []float32 {
	const line = 16
	s := make([]float32, n+line)
	off := int(-uintptr(unsafe.Pointer(&s[0])) / 4 % line)
	return s[off:][:n:n]
}

// freeList keeps objects for ever; there are never more than were in use at one time.
type freeList[T any] struct {
	mu   sync.Mutex
	free []*T
	make func() *T
}

func (l *freeList[T]) get() *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		t := l.free[n-1]
		l.free = l.free[:n-1]
		return t
	}
	return l.make()
}

func (l *freeList[T]) put(t *T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, t)
}

var (
	gemmScratches = freeList[gemmScratch]{make: newGemmScratch}
	gemmJobs      = freeList[gemmJob]{make: newGemmJob}
)

// gemmJob is one call of Gemm, cut into rowBlocks x colBlocks parts that share nothing but reading.
type gemmJob struct {
	kern                 *gemmKernel
	c                    Matrix
	a, b                 vectors
	inner                int
	accumulate           bool
	rowBlocks, colBlocks int
	blockRows, blockCols int
	run                  func(lo, hi int) // (*gemmJob).parts, made once so that a call allocates nothing
}

func newGemmJob() *gemmJob {
	j := new(gemmJob)
	j.run = j.parts
	return j
}

func (j *gemmJob) start(threads int, c, a, b Matrix, accumulate bool) {
	j.kern = gemmKernelNow()
	j.c, j.inner, j.accumulate = c, a.Cols, accumulate
	j.a = vectors{f32: a.F32, f16: a.F16, stride: a.RowStride, step: a.ColStride}
	j.b = vectors{f32: b.F32, f16: b.F16, stride: b.ColStride, step: b.RowStride}

	mr, nr := j.kern.mr, j.kern.nr
	j.blockRows = roundUp(ceilDiv(c.Rows, ceilDiv(c.Rows, gemmMC)), mr)
	j.rowBlocks = ceilDiv(c.Rows, j.blockRows)
	// Twice as many parts as threads, if they stay wide; as many as threads, if they are at least one panel.
	cols := max(ceilDiv(threads, j.rowBlocks), min(ceilDiv(2*threads, j.rowBlocks), c.Cols/gemmMinCols))
	if threads == 1 {
		cols = 1
	}
	j.blockCols = roundUp(ceilDiv(c.Cols, cols), nr)
	j.colBlocks = ceilDiv(c.Cols, j.blockCols)
}

// stop forgets the caller's memory.
func (j *gemmJob) stop() {
	j.c, j.a, j.b, j.kern = Matrix{}, vectors{}, vectors{}, nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceilDiv(a, b) * b }

// parts computes parts lo..hi-1. Parts of the same rows are neighbours.
func (j *gemmJob) parts(lo, hi int) {
	s := gemmScratches.get()
	for n := lo; n < hi; n++ {
		i0, j0 := n/j.colBlocks*j.blockRows, n%j.colBlocks*j.blockCols
		j.part(s, i0, min(j.blockRows, j.c.Rows-i0), j0, min(j.blockCols, j.c.Cols-j0))
	}
	clear(s.rows[:])
	gemmScratches.put(s)
}

// part computes C[i0:i0+m, j0:j0+n].
func (j *gemmJob) part(s *gemmScratch, i0, m, j0, n int) {
	kern := j.kern
	mr, nr := kern.mr, kern.nr
	ldc := j.c.RowStride
	for k0 := 0; k0 < j.inner; k0 += GemmKC {
		kc := min(GemmKC, j.inner-k0)
		add := j.accumulate || k0 > 0
		kern.pack(s, s.a, &j.a, i0, m, mr, k0, kc)
		for g := 0; g < n; g += gemmBCols {
			kern.pack(s, s.b, &j.b, j0+g, min(gemmBCols, n-g), nr, k0, kc)
			for jj := g; jj < min(g+gemmBCols, n); jj += nr {
				b := &s.b[(jj-g)*kc]
				for i := 0; i < m; i += mr {
					c := j.c.F32[(i0+i)*ldc+j0+jj:]
					if m-i >= mr && n-jj >= nr {
						kern.tile(kc, &s.a[i*kc], b, &c[0], ldc, add)
						continue
					}
					kern.tile(kc, &s.a[i*kc], b, &s.edge[0], nr, false)
					setEdge(c, ldc, s.edge, nr, min(mr, m-i), min(nr, n-jj), add)
				}
			}
		}
	}
}

// setEdge sets or adds the first rows x cols of a tile to C.
func setEdge(c []float32, ldc int, tile []float32, nr, rows, cols int, add bool) {
	for r := range rows {
		dst, src := c[r*ldc:][:cols], tile[r*nr:][:cols]
		if !add {
			copy(dst, src)
			continue
		}
		for x, v := range src {
			dst[x] += v
		}
	}
}
