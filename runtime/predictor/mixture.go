package predictor

import (
	"fmt"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// JointTable is the name of the one table of a layer's joint vocabulary.
const JointTable = "joint"

// Names of the tensors in a file of score rows, for the tables of every layer it names: rows are base + row·(mix·p), p the
// probabilities of a table's centroids. The factors are as in lookahead.safetensors.
func MixName(table string, l int) string { return fmt.Sprintf("mix.%s.%d", table, l) } // factor (r, K)
func RowName(table string, l int) string { return fmt.Sprintf("row.%s.%d", table, l) } // factor (M, r)
func BaseName(l int) string              { return fmt.Sprintf("base.%d", l) }          // F16 (M)

// mixTable is the low-rank score rows of one table.
type mixTable struct {
	k        int // centroids
	mix, row factor
}

// mixed is what one layer keeps.
type mixed struct {
	base   []float32 // (M)
	tables []mixTable
	pins   []int32
	scores []float32 // (M) of the observed token
	prob   []float32 // (K') of one table at a time, zero beyond K
	inner  []float32 // (r')
	codes  *kernels.Q8
	part   []float32 // (M)
}

// Mixture scores by what is expected of a neuron's energy under the probabilities that a network gives to centroids:
//
//	score = base + Σ_tables row · (mix · p)
//
// It is the selector `paper+` with the paper's two vocabularies, and `centroid` with one joint vocabulary a layer.
type Mixture struct {
	name   string
	first  int
	m      int
	p      *Predictor
	gate0  *gate0
	layers []mixed
	all    func(lo, hi int)
	right  func(layer int, gate, up, down []float32, ids []int32)
	sets   [][]uint64 // lazily, per layer: (K, W) what each centroid scores highest
}

// LoadPaperPlus reads the paper's network and score rows of its vocabularies, for layers ≥ max(1, firstLayer).
func LoadPaperPlus(network, rows, centroids string, cfg *checkpoint.Config, firstLayer int) (*Mixture, error) {
	s, err := loadMixture("paper+", network, rows, centroids, cfg, firstLayer, Projections[:])
	if err != nil {
		return nil, err
	}
	var c *Centroids // only a ladder asks for the right ids: the masks are read when it does
	s.right = func(layer int, gate, up, _ []float32, ids []int32) {
		if c == nil {
			var err error
			if c, err = LoadCentroids(centroids, cfg, firstLayer); err != nil {
				panic(err) // the file was fine a moment ago
			}
		}
		c.RightIDs(layer, gate, up, ids)
	}
	return s, nil
}

// LoadCentroid reads the network and the score rows of the joint vocabularies, for layers ≥ max(1, firstLayer).
func LoadCentroid(network, rows, centroids string, cfg *checkpoint.Config, firstLayer int) (*Mixture, error) {
	s, err := loadMixture("centroid", network, rows, centroids, cfg, firstLayer, []string{JointTable})
	if err == nil {
		s.sets, s.right = make([][]uint64, len(s.layers)), s.rightJoint
	}
	return s, err
}

func loadMixture(name, network, rows, centroids string, cfg *checkpoint.Config, firstLayer int, tables []string) (*Mixture, error) {
	s := &Mixture{name: name, first: max(1, firstLayer), m: cfg.Intermediate}
	var err error
	f, err := tensors.Open(rows)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for l := s.first; l < cfg.Layers; l++ {
		if _, ok := f.Info(BaseName(l)); ok && l > s.first {
			return nil, format.Hint(format.Inputf("%s names the neurons of layers from %d on, not those of layer %d", f.Path(), l, s.first),
				fmt.Sprintf("use --dense-layers %d or more, another --selector, or prepare the bundle for fewer dense layers", l))
		} else if ok {
			break
		}
	}
	if s.p, err = loadNetwork(network, cfg, firstLayer, tables); err != nil {
		return nil, err
	}
	c, err := tensors.Open(centroids)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if s.gate0, err = readGate0(c, cfg); err != nil {
		return nil, err
	}
	if s.gate0.table.k != s.p.k0 {
		return nil, format.Inputf("%s knows %d centroids of layer 0, %s has %d: prepare the bundle again", network, s.p.k0, centroids, s.gate0.table.k)
	}
	for l := s.first; l < cfg.Layers; l++ {
		x, err := s.read(f, l, tables)
		if err != nil {
			return nil, err
		}
		if x.pins, err = readPins(c, l, s.m); err != nil {
			return nil, err
		}
		s.layers = append(s.layers, x)
	}
	s.all = func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x := &s.layers[i]
			copy(x.scores, x.base)
			for t := range x.tables {
				kernels.GemvF16(s.p.logits[i*len(tables)+t], s.p.xn, s.p.heads[i*len(tables)+t].w, s.p.t)
				kernels.Add(s.p.logits[i*len(tables)+t], s.p.heads[i*len(tables)+t].bias)
				k := x.tables[t].k
				clear(x.prob)
				copy(x.prob[:k], s.p.logits[i*len(tables)+t])
				kernels.Softmax(x.prob[:k])
				x.add(t)
			}
		}
	}
	return s, nil
}

// read reads one layer's score rows.
func (s *Mixture) read(f *tensors.File, l int, tables []string) (x mixed, err error) {
	if x.base, err = finite(f, BaseName(l), "F16", s.m); err != nil {
		return x, err
	}
	most, rank := 0, 0
	for t, table := range tables {
		y := mixTable{k: s.p.heads[(l-s.first)*len(tables)+t].k}
		if y.mix, err = readFactor(f, MixName(table, l), -1, y.k); err != nil {
			return x, err
		}
		if y.row, err = readFactor(f, RowName(table, l), s.m, y.mix.rows); err != nil {
			return x, err
		}
		x.tables = append(x.tables, y)
		most, rank = max(most, y.mix.cols), max(rank, y.row.cols)
	}
	x.scores, x.part = make([]float32, s.m), make([]float32, s.m)
	x.prob, x.inner, x.codes = make([]float32, most), make([]float32, rank), kernels.NewQ8(max(most, rank))
	return x, nil
}

// add adds table t's part to the scores, for the probabilities in prob.
func (x *mixed) add(t int) {
	y := &x.tables[t]
	z := x.inner[:y.row.cols]
	clear(z)
	x.codes.Resize(y.mix.cols)
	x.codes.Set(x.prob[:y.mix.cols])
	y.mix.gemv(z[:y.mix.rows], x.codes, 0, y.mix.rows)
	x.codes.Resize(y.row.cols)
	x.codes.Set(z)
	y.row.gemv(x.part, x.codes, 0, len(x.part))
	kernels.Add(x.scores, x.part)
}

func (s *Mixture) Name() string      { return s.name }
func (s *Mixture) NeedsLayer0() bool { return true }

// Gate0 names layer 0's gate centroid for Features.Gate0 from gate_proj's output (M).
func (s *Mixture) Gate0(gate []float32) int32 { return s.gate0.name(gate) }

// Observe scores every layer for a token.
func (s *Mixture) Observe(pool *kernels.Pool, f *Features) {
	s.p.forward(pool, f)
	pool.Run(len(s.layers), 1, s.all)
}

// Scores copies the observed token's scores of a layer.
func (s *Mixture) Scores(layer int, dst []float32) { copy(dst, s.layers[layer-s.first].scores) }

func (s *Mixture) Pins(layer int) []int32 { return s.layers[layer-s.first].pins }

// Bytes is what the selector holds in memory.
func (s *Mixture) Bytes() int64 {
	n := s.p.Bytes() + s.gate0.bytes()
	for i := range s.layers {
		x := &s.layers[i]
		n += 4 * int64(len(x.base)+len(x.pins)+len(x.scores)+len(x.prob)+len(x.inner)+len(x.part))
		for t := range x.tables {
			n += x.tables[t].mix.bytes() + x.tables[t].row.bytes()
		}
	}
	return n
}

func (s *Mixture) Tables() int { return len(s.p.tables) }

// RightIDs names the ids of a token whose activations are known: see Vocabulary.
func (s *Mixture) RightIDs(layer int, gate, up, down []float32, ids []int32) {
	s.right(layer, gate, up, down, ids)
}

// SetIDs scores the layer as if these ids were certain.
func (s *Mixture) SetIDs(layer int, ids []int32) {
	x := &s.layers[layer-s.first]
	copy(x.scores, x.base)
	for t := range x.tables {
		clear(x.prob)
		x.prob[ids[t]] = 1
		x.add(t)
	}
}

// rightJoint names the centroid whose half of all neurons, those that it scores highest, covers most of the token's
// importance, ties to the lower id.
func (s *Mixture) rightJoint(layer int, gate, up, down []float32, ids []int32) {
	i := layer - s.first
	if s.sets[i] == nil {
		s.sets[i] = s.halves(layer)
	}
	imp := make([]float32, s.m)
	kernels.SiLU(imp, gate)
	for n, a := range imp {
		if a *= up[n]; a < 0 {
			a = -a
		}
		imp[n] = a * down[n]
	}
	w, best := Words(s.m), float32(-1)
	for c := range s.layers[i].tables[0].k {
		sum, set := float32(0), s.sets[i][c*w:(c+1)*w]
		for n, v := range imp {
			if set[n/64]>>(n%64)&1 == 1 {
				sum += v
			}
		}
		if sum > best {
			best, ids[0] = sum, int32(c)
		}
	}
}

// halves are the ⌈M/2⌉ neurons that each centroid of a layer scores highest, ties to the lower id, as masks (K, W).
func (s *Mixture) halves(layer int) []uint64 {
	w, k := Words(s.m), s.layers[layer-s.first].tables[0].k
	sets, scores, order := make([]uint64, k*w), make([]float32, s.m), make([]int32, s.m)
	keep := slices.Clone(s.layers[layer-s.first].scores)
	for c := range k {
		s.SetIDs(layer, []int32{int32(c)})
		s.Scores(layer, scores)
		for n := range order {
			order[n] = int32(n)
		}
		slices.SortFunc(order, func(a, b int32) int {
			switch {
			case scores[a] > scores[b]:
				return -1
			case scores[a] < scores[b]:
				return 1
			}
			return int(a - b)
		})
		for _, n := range order[:(s.m+1)/2] {
			sets[c*w+int(n)/64] |= 1 << (n % 64)
		}
	}
	copy(s.layers[layer-s.first].scores, keep)
	return sets
}

var _ Vocabulary = (*Mixture)(nil)
