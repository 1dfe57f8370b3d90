package predictor

import (
	"fmt"
	"math"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Names of the tensors in lookahead.safetensors, for every layer l ≥ 1. A factor of R rows and C columns is codes
// U8 (R, C'/2) and scales F16 (R, C'/32) as kernels.GemvQ4I8 reads them, C' being C rounded up to 32; the columns beyond
// C have codes of zero.
func ScaleName(l int) string            { return fmt.Sprintf("scale.%d", l) }  // F32 (H): x is multiplied by it
func InName(p, l int) string            { return "in." + TableName(p, l) }     // factor (r, H)
func OutName(p, l int) string           { return "out." + TableName(p, l) }    // factor (M, r)
func OffsetName(p, l int) string        { return "offset." + TableName(p, l) } // F16 (M): added to the outputs
func DevName(p, l int) string           { return "dev." + TableName(p, l) }    // F16 (M): √ of the residual variance
func DownName(l int) string             { return fmt.Sprintf("down.%d", l) }   // F16 (M): ‖down‖₂
func FactorScales(factor string) string { return factor + ".scales" }

const SourceName = "source" // I32 (N): the site that layer l's neurons are named from, −1 for layer 0

// factor is a matrix of 4-bit codes.
type factor struct {
	rows, cols int // cols is a multiple of kernels.Q4Group
	codes      []byte
	scales     []uint16
}

func (f *factor) bytes() int64 { return int64(len(f.codes) + 2*len(f.scales)) }

// projection is one of a layer's two low-rank maps.
type projection struct {
	in, out factor
	offset  []float32 // (M)
	dev     []float32 // (M)
}

// ahead is what one layer keeps.
type ahead struct {
	layer int
	scale []float32 // (H')
	proj  [2]projection
	down  []float32 // (M) ‖down‖²
	pins  []int32
}

// Lookahead scores neuron j of a layer by the energy expected of its output, from gate and up outputs that low-rank maps
// predict from the residual stream at an earlier site: with ĝ, û and their residual deviations d_g, d_u,
//
//	score_j = ln( ‖down_j‖² · E[silu(ĝ + d_g·z)²] · (û² + d_u²) )
//
// z standard normal, the expectation by three-point Gauss–Hermite: ⅔·silu(ĝ)² + ⅙·silu(ĝ ± √3·d_g)². The logarithm
// makes margins relative: it is straight between powers of two, which keeps the order.
type Lookahead struct {
	first, h, m int
	eps         float32
	layers      []ahead // from first
	at          [][]int // per site: the layers it names

	normed []float32    // (H')
	scaled []float32    // (H')
	input  *kernels.Q8  // (H') scaled in 8 bits
	z      [2][]float32 // (r') the inner vectors, zero beyond r
	inner  [2]*kernels.Q8
	y      [2][]float32 // (M) predicted outputs
	act    [3][]float32 // (M) silu at the three points
	scores [][]float32  // (M) for each layer that a site names
	now    []int        // layers that the last look named
	cur    *ahead       // arguments of the running closures
	dst    []float32
	inFn   func(lo, hi int)
	outFn  func(lo, hi int)
}

// LoadLookahead reads lookahead.safetensors, and the pins from the centroids member, for layers ≥ max(1, firstLayer).
func LoadLookahead(path, centroids string, cfg *checkpoint.Config, firstLayer int) (*Lookahead, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := tensors.Open(centroids)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &Lookahead{first: max(1, firstLayer), h: cfg.Hidden, m: cfg.Intermediate, eps: float32(cfg.RMSEps), at: make([][]int, 2*cfg.Layers)}
	source, err := readSources(f, cfg.Layers)
	if err != nil {
		return nil, err
	}
	rank, most := 0, 0
	for l := s.first; l < cfg.Layers; l++ {
		a, err := s.read(f, l)
		if err != nil {
			return nil, err
		}
		if a.pins, err = readPins(c, l, s.m); err != nil {
			return nil, err
		}
		s.layers = append(s.layers, a)
		rank = max(rank, a.proj[0].out.cols, a.proj[1].out.cols)
		s.at[source[l]] = append(s.at[source[l]], l)
		most = max(most, len(s.at[source[l]]))
	}
	s.allocate(rank, most)
	return s, nil
}

// readSources holds every layer's site against the order in which a token meets them.
func readSources(f *tensors.File, layers int) ([]int32, error) {
	in, ok := f.Info(SourceName)
	if !ok || in.DType != "I32" || len(in.Shape) != 1 || in.Shape[0] != layers {
		return nil, format.Inputf("%s: tensor %s is missing or not I32 (%d)", f.Path(), SourceName, layers)
	}
	source, err := f.I32(SourceName)
	if err != nil {
		return nil, err
	}
	for l := 1; l < layers; l++ {
		if source[l] < 0 || int(source[l]) >= MLPSite(l) {
			return nil, format.Corruptf("%s: tensor %s: layer %d is named from site %d, not in 0..%d", f.Path(), SourceName, l, source[l], MLPSite(l)-1)
		}
	}
	return source, nil
}

func (s *Lookahead) read(f *tensors.File, l int) (a ahead, err error) {
	a.layer = l
	if a.scale, err = finite(f, ScaleName(l), "F32", s.h); err != nil {
		return a, err
	}
	a.scale = append(a.scale, make([]float32, padded(s.h)-s.h)...)
	for p := range Projections {
		j := &a.proj[p]
		if j.in, err = readFactor(f, InName(p, l), -1, s.h); err != nil {
			return a, err
		}
		if j.out, err = readFactor(f, OutName(p, l), s.m, j.in.rows); err != nil {
			return a, err
		}
		if j.offset, err = finite(f, OffsetName(p, l), "F16", s.m); err != nil {
			return a, err
		}
		if j.dev, err = finite(f, DevName(p, l), "F16", s.m); err != nil {
			return a, err
		}
	}
	if a.down, err = finite(f, DownName(l), "F16", s.m); err != nil {
		return a, err
	}
	for i, d := range a.down {
		a.down[i] = d * d
	}
	return a, nil
}

// padded is n rounded up to a whole group of codes.
func padded(n int) int { return (n + kernels.Q4Group - 1) / kernels.Q4Group * kernels.Q4Group }

// readFactor reads codes and scales of a factor with that many rows (−1: any up to cols) and columns.
func readFactor(f *tensors.File, name string, rows, cols int) (m factor, err error) {
	m.cols = padded(cols)
	in, ok := f.Info(name)
	if ok && rows < 0 && len(in.Shape) == 2 && in.Shape[0] >= 1 && in.Shape[0] <= cols {
		rows = in.Shape[0]
	}
	if m.rows = rows; rows < 1 {
		return m, format.Inputf("%s: tensor %s is missing or has not 1..%d rows: prepare the bundle again", f.Path(), name, cols)
	}
	if err := wantShape(f, name, "U8", rows, m.cols/2); err != nil {
		return m, err
	}
	b, err := f.Bytes(name)
	if err != nil {
		return m, err
	}
	m.codes = append([]byte(nil), b...)
	if err := wantShape(f, FactorScales(name), "F16", rows, m.cols/kernels.Q4Group); err != nil {
		return m, err
	}
	if m.scales, err = f.F16(FactorScales(name)); err != nil {
		return m, err
	}
	for i, v := range m.scales {
		if v&0x7c00 == 0x7c00 {
			return m, format.Corruptf("%s: tensor %s: element %d is not finite", f.Path(), FactorScales(name), i)
		}
	}
	return m, nil
}

// finite reads n finite numbers.
func finite(f *tensors.File, name, dtype string, n int) (v []float32, err error) {
	if err := wantShape(f, name, dtype, n); err != nil {
		return nil, err
	}
	if dtype == "F32" {
		v, err = f.F32(name)
	} else {
		var half []uint16
		if half, err = f.F16(name); err == nil {
			v = make([]float32, n)
			kernels.F16ToF32(v, half)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, x := range v {
		if x-x != 0 {
			return nil, format.Corruptf("%s: tensor %s: element %d is %v", f.Path(), name, i, x)
		}
	}
	return v, nil
}

// allocate makes the working memory and binds the parallel loops once, so that a token allocates nothing.
func (s *Lookahead) allocate(rank, most int) {
	s.normed, s.scaled, s.input = make([]float32, s.h), make([]float32, padded(s.h)), kernels.NewQ8(padded(s.h))
	for p := range Projections {
		s.z[p], s.y[p], s.inner[p] = make([]float32, rank), make([]float32, s.m), kernels.NewQ8(rank)
	}
	for i := range s.act {
		s.act[i] = make([]float32, s.m)
	}
	for range most {
		s.scores = append(s.scores, make([]float32, s.m))
	}
	s.inFn, s.outFn = s.inRows, s.outRows
}

func (s *Lookahead) Name() string                     { return "lookahead" }
func (s *Lookahead) NeedsLayer0() bool                { return false }
func (s *Lookahead) Observe(*kernels.Pool, *Features) {}
func (s *Lookahead) Pins(layer int) []int32           { return s.layers[layer-s.first].pins }

// Look predicts the layers that the site names.
func (s *Lookahead) Look(pool *kernels.Pool, site int, x []float32) []int {
	s.now = s.at[site]
	if len(s.now) == 0 {
		return nil
	}
	kernels.RMSNorm(s.normed, x, nil, s.eps)
	for i, l := range s.now {
		s.cur, s.dst = &s.layers[l-s.first], s.scores[i]
		for j, v := range s.normed {
			s.scaled[j] = v * s.cur.scale[j]
		}
		s.input.Set(s.scaled)
		rows := 0
		for p := range s.z {
			n := s.cur.proj[p].in.rows
			clear(s.z[p][n:])
			rows += n
		}
		pool.Run(rows, 16, s.inFn)
		for p, v := range s.inner {
			v.Resize(s.cur.proj[p].out.cols)
			v.Set(s.z[p][:s.cur.proj[p].out.cols])
		}
		pool.Run(s.m, 64, s.outFn)
	}
	return s.now
}

// inRows computes inner values [lo, hi), gate's before up's.
func (s *Lookahead) inRows(lo, hi int) {
	base := 0
	for p := range s.z {
		f := &s.cur.proj[p].in
		if a, b := max(lo-base, 0), min(hi-base, f.rows); a < b {
			f.gemv(s.z[p][a:b], s.input, a, b)
		}
		base += f.rows
	}
}

// gemv computes rows [lo, hi) of f·x.
func (f *factor) gemv(dst []float32, x *kernels.Q8, lo, hi int) {
	const g = kernels.Q4Group
	kernels.GemvQ4I8(dst, x, f.codes[lo*f.cols/2:hi*f.cols/2], f.scales[lo*f.cols/g:hi*f.cols/g])
}

// outRows scores neurons [lo, hi).
func (s *Lookahead) outRows(lo, hi int) {
	for p := range s.y {
		j := &s.cur.proj[p]
		y := s.y[p][lo:hi]
		j.out.gemv(y, s.inner[p], lo, hi)
		kernels.Add(y, j.offset[lo:hi])
	}
	g, u := s.y[0][lo:hi], s.y[1][lo:hi]
	dg, du := s.cur.proj[0].dev[lo:hi], s.cur.proj[1].dev[lo:hi]
	a, b, c := s.act[0][lo:hi], s.act[1][lo:hi], s.act[2][lo:hi]
	for i, v := range g {
		d := sqrt3 * dg[i]
		b[i], c[i] = v+d, v-d
	}
	kernels.SiLU(a, g)
	kernels.SiLU(b, b)
	kernels.SiLU(c, c)
	dst, down := s.dst[lo:hi], s.cur.down[lo:hi]
	for i := range dst {
		e := (4*a[i]*a[i] + b[i]*b[i] + c[i]*c[i]) * (1. / 6)
		dst[i] = logEnergy(down[i] * e * (u[i]*u[i] + du[i]*du[i]))
	}
}

const sqrt3 = 1.7320508

// logEnergy is ln v, straight between powers of two, for v ≥ 0. Zero gives about −88.
func logEnergy(v float32) float32 {
	return (float32(math.Float32bits(v)) - 127<<23) * (math.Ln2 / (1 << 23))
}

// Scores copies the scores of a layer that the last Look named.
func (s *Lookahead) Scores(layer int, dst []float32) {
	for i, l := range s.now {
		if l == layer {
			copy(dst, s.scores[i])
			return
		}
	}
	panic(fmt.Sprintf("predictor: layer %d is not named at this site", layer))
}

// Bytes is what the selector holds in memory.
func (s *Lookahead) Bytes() int64 {
	n := 4 * int64(len(s.normed)+len(s.scaled)+len(s.z[0])+len(s.z[1])+(5+len(s.scores))*s.m)
	for i := range s.layers {
		a := &s.layers[i]
		n += 4 * int64(len(a.scale)+len(a.down)+len(a.pins))
		for p := range a.proj {
			j := &a.proj[p]
			n += j.in.bytes() + j.out.bytes() + 4*int64(len(j.offset)+len(j.dev))
		}
	}
	return n
}

var _ Stepwise = (*Lookahead)(nil)
