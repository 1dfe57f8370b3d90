package predictor

import (
	"fmt"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Features is what layer 0 tells about a token; the slices are (H) and stay the caller's.
type Features struct {
	Embed   []float32 // the token's embedding
	AttnOut []float32 // layer 0's attention output before the residual addition
	MLPIn   []float32 // layer 0's normed MLP input
	Resid   []float32 // the residual stream after layer 0
	Gate0   int32     // layer 0's gate centroid (Centroids.Gate0)
}

func (f *Features) vector(j int) []float32 {
	switch j {
	case 0:
		return f.Embed
	case 1:
		return f.AttnOut
	case 2:
		return f.MLPIn
	}
	return f.Resid
}

// block is one residual block.
type block struct {
	norm   []float32 // (T)
	w1, w2 []uint16  // (F, T), (T, F), F = Expand·T
}

// head is the classifier of one table.
type head struct {
	k    int
	w    []uint16  // (K, T)
	bias []float32 // (K)
}

// Predictor is the network with float16 weights and the working memory of one token. It is not safe for concurrent use.
type Predictor struct {
	First int // first layer it predicts

	tables []string // heads of a layer
	h, t   int
	k0     int
	proj   [4][]uint16 // (T, H)
	gate0  []uint16    // (K0, T)
	blocks [Blocks]block
	final  []float32 // (T)
	heads  []head    // layer by layer from First, one of each table

	in            [4][]float32 // (H) normed features
	part          []float32    // (4, T) the projections' outputs
	x, xn         []float32    // (T)
	inner         []float32    // (F)
	logits        [][]float32  // per head
	ids           []int32      // per head
	src, dst      []float32    // operands of the matrix in progress
	w             []uint16
	projFn, matFn func(lo, hi int)
	headFn        func(lo, hi int)
}

// LoadPredictor reads predictor.safetensors and keeps the heads of layers ≥ max(1, firstLayer).
func LoadPredictor(path string, cfg *checkpoint.Config, firstLayer int) (*Predictor, error) {
	return loadNetwork(path, cfg, firstLayer, Projections[:])
}

// loadNetwork reads a network with a head for each of the tables of layers ≥ max(1, firstLayer).
func loadNetwork(path string, cfg *checkpoint.Config, firstLayer int, tables []string) (*Predictor, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Predictor{First: max(1, firstLayer), tables: tables, h: cfg.Hidden}
	if err := namedFrom(f, tables[0], p.First, cfg.Layers); err != nil {
		return nil, err
	}
	if p.t, err = rows2(f, ProjName(0), "F16", p.h, MaxDim); err != nil {
		return nil, err
	}
	if p.k0, err = rows2(f, Gate0Name, "F16", p.t, MaxCentroids); err != nil {
		return nil, err
	}
	for j := range p.proj {
		if p.proj[j], err = matrix(f, ProjName(j), p.t, p.h); err != nil {
			return nil, err
		}
	}
	if p.gate0, err = f.F16(Gate0Name); err != nil {
		return nil, err
	}
	inner := Expand * p.t
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.norm, err = vector(f, BlockNormName(i), p.t); err != nil {
			return nil, err
		}
		if b.w1, err = matrix(f, BlockW1Name(i), inner, p.t); err != nil {
			return nil, err
		}
		if b.w2, err = matrix(f, BlockW2Name(i), p.t, inner); err != nil {
			return nil, err
		}
	}
	if p.final, err = vector(f, FinalName, p.t); err != nil {
		return nil, err
	}
	for l := p.First; l < cfg.Layers; l++ {
		for _, table := range tables {
			var h head
			name := HeadOf(table, l)
			if h.k, err = rows2(f, name, "F16", p.t, MaxCentroids); err != nil {
				return nil, err
			}
			if h.w, err = f.F16(name); err != nil {
				return nil, err
			}
			if h.bias, err = vector(f, name+".bias", h.k); err != nil {
				return nil, err
			}
			p.heads = append(p.heads, h)
		}
	}
	p.allocate()
	return p, nil
}

// namedFrom refuses a first layer before those that the file has heads of.
func namedFrom(f *tensors.File, table string, first, layers int) error {
	for l := first; l < layers; l++ {
		if _, ok := f.Info(HeadOf(table, l)); ok {
			if l > first {
				return format.Hint(format.Inputf("%s names the neurons of layers from %d on, not those of layer %d", f.Path(), l, first),
					fmt.Sprintf("use --dense-layers %d or more, another --selector, or prepare the bundle for fewer dense layers", l))
			}
			break
		}
	}
	return nil
}

// allocate makes the working memory and binds the parallel loops once, so that a token allocates nothing.
func (p *Predictor) allocate() {
	for j := range p.in {
		p.in[j] = make([]float32, p.h)
	}
	p.part = make([]float32, 4*p.t)
	p.x, p.xn = make([]float32, p.t), make([]float32, p.t)
	p.inner = make([]float32, Expand*p.t)
	for _, h := range p.heads {
		p.logits = append(p.logits, make([]float32, h.k))
	}
	p.ids = make([]int32, len(p.heads))
	p.projFn = func(lo, hi int) {
		for lo < hi {
			j, r := lo/p.t, lo%p.t
			n := min(hi-lo, p.t-r)
			kernels.GemvF16(p.part[lo:lo+n], p.in[j], p.proj[j][r*p.h:(r+n)*p.h], p.h)
			lo += n
		}
	}
	p.matFn = func(lo, hi int) {
		k := len(p.src)
		kernels.GemvF16(p.dst[lo:hi], p.src, p.w[lo*k:hi*k], k)
	}
	p.headFn = func(lo, hi int) {
		for i := lo; i < hi; i++ {
			h, y := &p.heads[i], p.logits[i]
			kernels.GemvF16(y, p.xn, h.w, p.t)
			kernels.Add(y, h.bias)
			p.ids[i] = int32(kernels.MaxIndex(y))
		}
	}
}

// Predict names a gate and an up centroid for every layer l ≥ First, in gate[l-First] and up[l-First].
func (p *Predictor) Predict(pool *kernels.Pool, f *Features, gate, up []int32) {
	p.forward(pool, f)
	pool.Run(len(p.heads), 1, p.headFn)
	for i := range len(p.heads) / 2 {
		gate[i], up[i] = p.ids[2*i], p.ids[2*i+1]
	}
}

// forward leaves h, the input of the heads, in p.xn.
func (p *Predictor) forward(pool *kernels.Pool, f *Features) {
	for j := range p.in {
		kernels.RMSNorm(p.in[j], f.vector(j), nil, Eps)
	}
	pool.Run(4*p.t, 32, p.projFn)
	kernels.F16ToF32(p.x, p.gate0[int(f.Gate0)*p.t:(int(f.Gate0)+1)*p.t])
	for j := range p.in {
		kernels.Add(p.x, p.part[j*p.t:(j+1)*p.t])
	}
	for i := range p.blocks {
		b := &p.blocks[i]
		kernels.RMSNorm(p.xn, p.x, b.norm, Eps)
		p.multiply(pool, p.inner, p.xn, b.w1)
		kernels.SiLU(p.inner, p.inner)
		p.multiply(pool, p.xn, p.inner, b.w2)
		kernels.Add(p.x, p.xn)
	}
	kernels.RMSNorm(p.xn, p.x, p.final, Eps)
}

// multiply computes dst = w·src on all threads.
func (p *Predictor) multiply(pool *kernels.Pool, dst, src []float32, w []uint16) {
	p.dst, p.src, p.w = dst, src, w
	pool.Run(len(dst), 32, p.matFn)
}

// Logits is the last token's score row of a table (K); it is overwritten by the next token.
func (p *Predictor) Logits(table, layer int) []float32 {
	return p.logits[len(p.tables)*(layer-p.First)+table]
}

// Dim is T.
func (p *Predictor) Dim() int { return p.t }

// Bytes is what the predictor holds in memory.
func (p *Predictor) Bytes() int64 {
	n := 2*int64(4*p.t*p.h+p.k0*p.t+Blocks*2*Expand*p.t*p.t) + 4*int64(4*p.h+(4+2+Expand+Blocks+1)*p.t)
	for _, h := range p.heads {
		n += int64(h.k) * int64(2*p.t+4+4)
	}
	return n
}
