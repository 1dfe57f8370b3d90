package predictor

import (
	"fmt"
	"math"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
)

// Names of the tensors in the centroids member; gate.l, up.l (TableName) are U64 (K, W).
func FreqName(p, l int) string { return "freq." + TableName(p, l) }   // F32 (M) marginal frequencies
func StaticName(l int) string  { return fmt.Sprintf("static.%d", l) } // F32 (M) mean importance
func PinsName(l int) string    { return fmt.Sprintf("pins.%d", l) }   // I32 pinned neurons, ascending

const (
	ThresholdName = "threshold"   // F32 (N, 2): gate and up magnitude thresholds of every layer
	Layer0Name    = "layer0.gate" // U64 (K, W): layer 0's gate centroids as clustered
)

// Words is W, the 64-bit words of a mask over m neurons.
func Words(m int) int { return (m + 63) / 64 }

// table is the pruned masks of one layer and projection.
type table struct {
	k     int
	masks []uint64 // (K, W)
}

// Centroids holds the pruned masks and the score rows of layers ≥ First, and layer 0's gate centroids. Gate0 uses
// working memory: one goroutine at a time.
type Centroids struct {
	First int

	m, words int
	tables   [2][]table // per projection, layers from First
	base     [][]float32
	pins     [][]int32
	gate0
}

// gate0 names layer 0's gate centroid. Its working memory serves RightIDs too.
type gate0 struct {
	thresholds []float32 // (N, 2) gate and up
	table      table
	act        []float32 // (M)
	mask       []uint64  // (W)
	dist       []int32   // (K)
}

// readGate0 reads thresholds and layer 0's centroids from the centroids member.
func readGate0(f *tensors.File, cfg *checkpoint.Config) (*gate0, error) {
	g := &gate0{}
	if err := wantShape(f, ThresholdName, "F32", cfg.Layers, 2); err != nil {
		return nil, err
	}
	var err error
	if g.thresholds, err = f.F32(ThresholdName); err != nil {
		return nil, err
	}
	for i, v := range g.thresholds {
		if v != v || v < 0 {
			return nil, format.Corruptf("%s: tensor %s: layer %d's %s threshold is %v", f.Path(), ThresholdName, i/2, Projections[i%2], v)
		}
	}
	if g.table, err = readTable(f, Layer0Name, cfg.Intermediate); err != nil {
		return nil, err
	}
	g.act, g.mask, g.dist = make([]float32, cfg.Intermediate), make([]uint64, Words(cfg.Intermediate)), make([]int32, g.table.k)
	return g, nil
}

// name names the centroid nearest to layer 0's gate mask, ties to the lower id. gate (M) is gate_proj's output before
// the activation; it is not changed.
func (g *gate0) name(gate []float32) int32 {
	kernels.SiLU(g.act, gate)
	kernels.MaskAtLeast(g.mask, g.act, g.thresholds[0])
	kernels.HammingRows(g.dist, g.mask, g.table.masks)
	best := 0
	for i, d := range g.dist {
		if d < g.dist[best] {
			best = i
		}
	}
	return int32(best)
}

func (g *gate0) bytes() int64 {
	return int64(len(g.table.masks)+len(g.mask))*8 + int64(len(g.act)+len(g.dist)+len(g.thresholds))*4
}

// LoadCentroids reads the bundle's centroids member for layers ≥ max(1, firstLayer).
func LoadCentroids(path string, cfg *checkpoint.Config, firstLayer int) (*Centroids, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := cfg.Intermediate
	c := &Centroids{First: max(1, firstLayer), m: m, words: Words(m)}
	g, err := readGate0(f, cfg)
	if err != nil {
		return nil, err
	}
	c.gate0 = *g
	for l := c.First; l < cfg.Layers; l++ {
		base := make([]float32, m)
		for p := range Projections {
			t, err := readTable(f, TableName(p, l), m)
			if err != nil {
				return nil, err
			}
			c.tables[p] = append(c.tables[p], t)
			freq, err := scoreRow(f, FreqName(p, l), m)
			if err != nil {
				return nil, err
			}
			for n, v := range freq {
				if p == 0 {
					base[n] = v
				} else {
					base[n] *= v
				}
			}
		}
		c.base = append(c.base, base)
		pins, err := readPins(f, l, m)
		if err != nil {
			return nil, err
		}
		c.pins = append(c.pins, pins)
	}
	return c, nil
}

// readTable reads masks and refuses bits beyond the last neuron.
func readTable(f *tensors.File, name string, m int) (t table, err error) {
	w := Words(m)
	if t.k, err = rows2(f, name, "U64", w, MaxCentroids); err != nil {
		return t, err
	}
	if t.masks, err = f.U64(name); err != nil {
		return t, err
	}
	if m%64 != 0 {
		for r := range t.k {
			if t.masks[r*w+w-1]>>(m%64) != 0 {
				return t, format.Corruptf("%s: tensor %s: centroid %d names a neuron beyond %d", f.Path(), name, r, m-1)
			}
		}
	}
	return t, nil
}

// scoreRow reads M scores and refuses what cannot be ordered.
func scoreRow(f *tensors.File, name string, m int) ([]float32, error) {
	v, err := vector(f, name, m)
	if err != nil {
		return nil, err
	}
	for n, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) || x < 0 {
			return nil, format.Corruptf("%s: tensor %s: neuron %d has score %v", f.Path(), name, n, x)
		}
	}
	return v, nil
}

// readPins reads a layer's pinned neurons, which must ascend.
func readPins(f *tensors.File, l, m int) ([]int32, error) {
	name := PinsName(l)
	in, ok := f.Info(name)
	if !ok || in.DType != "I32" || len(in.Shape) != 1 || in.Shape[0] > m {
		return nil, format.Inputf("%s: tensor %s is missing or not I32 (≤ %d)", f.Path(), name, m)
	}
	pins, err := f.I32(name)
	if err != nil {
		return nil, err
	}
	last := int32(-1)
	for _, n := range pins {
		if n <= last || int(n) >= m {
			return nil, format.Corruptf("%s: tensor %s: neurons must ascend within 0..%d", f.Path(), name, m-1)
		}
		last = n
	}
	return pins, nil
}

// Gate0 names layer 0's gate centroid from gate_proj's output (M).
func (c *Centroids) Gate0(gate []float32) int32 { return c.gate0.name(gate) }

// Mask is the pruned mask (W) of a centroid.
func (c *Centroids) Mask(proj, layer int, id int32) []uint64 {
	t := &c.tables[proj][layer-c.First]
	return t.masks[int(id)*c.words : (int(id)+1)*c.words]
}

// Count is K of a table.
func (c *Centroids) Count(proj, layer int) int { return c.tables[proj][layer-c.First].k }

// Pins are the neurons of a layer that stay resident, ascending.
func (c *Centroids) Pins(layer int) []int32 { return c.pins[layer-c.First] }

// Bytes is what the tables hold in memory.
func (c *Centroids) Bytes() int64 {
	n := c.gate0.bytes()
	for i := range c.base {
		n += int64(len(c.tables[0][i].masks)+len(c.tables[1][i].masks))*8 + int64(c.m)*4 + int64(len(c.pins[i]))*4
	}
	return n
}
