package ladder

import (
	"fmt"
	"math"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
)

// Names of rungs that are no selector's.
const (
	DenseName = "dense" // every neuron
	BestName  = "best"  // the K_max neurons of largest importance for each token
)

// Choices of a rung.
const (
	Predicted = "predicted" // as on a device
	Perfect   = "perfect"   // the selector is told what the layer will compute
)

// Rung is one configuration of the ladder.
type Rung struct {
	Selector string  `json:"selector"`         // DenseName, BestName, or a selector's name
	Choice   string  `json:"choice,omitempty"` // "" for the dense rung
	Dense    int     `json:"dense_layers,omitempty"`
	KMax     int     `json:"k_max,omitempty"`
	ReadCap  int     `json:"rows_per_layer_cap,omitempty"` // most rows read per layer and token; 0 is no limit
	Margin   float32 `json:"margin,omitempty"`

	bundle int // whose selector it is
}

func (r Rung) String() string {
	if r.Selector == DenseName {
		return r.Selector
	}
	s := fmt.Sprintf("%s %s, d = %d, K_max %d", r.Selector, r.Choice, r.Dense, r.KMax)
	if r.ReadCap > 0 {
		s += fmt.Sprintf(", at most %d rows", r.ReadCap)
	}
	if r.Margin > 0 {
		s += fmt.Sprintf(", margin %g", r.Margin)
	}
	return s
}

// Budget is the most that is read per token, the same share for every sparse layer: a share of K_max, or bytes.
type Budget struct {
	Share float64
	Bytes int64
}

// rows is the limit of each of layers sparse layers, as the engine has it; 0 is none.
func (b Budget) rows(kMax, layers, stride int) int {
	n := int(b.Share * float64(kMax))
	if b.Bytes > 0 {
		n = int(b.Bytes / (int64(layers) * int64(stride)))
	}
	if n = min(n, kMax); b.Share > 0 || b.Bytes > 0 {
		n = max(n, 1)
	}
	return n
}

// rungs lists the ladder for what was asked, best first within each d and K_max.
func rungs(bs []*bundle.Bundle, o Options) (rs []Rung, warnings []string, err error) {
	m := &bs[0].Manifest.Model
	dense := o.Dense
	if len(dense) == 0 {
		dense = []int{bs[0].Manifest.Sparse.DefaultDense}
	}
	for _, d := range dense {
		if d < 1 || d >= m.Layers {
			return nil, nil, format.Inputf("--dense-layers %d: want 1 to %d, one layer must be sparse", d, m.Layers-1)
		}
	}
	kMax := slices.Clone(o.KMax)
	for _, s := range o.Sparsity {
		if !(s >= 0 && s < 1) {
			return nil, nil, format.Inputf("--sparsity %v: must be at least 0 and below 1", s)
		}
		kMax = append(kMax, max(1, int(math.Round((1-s)*float64(m.Intermediate)))))
	}
	if len(kMax) == 0 {
		for _, b := range bs {
			kMax = append(kMax, b.Manifest.Sparse.KMax)
		}
	}
	slices.Sort(kMax)
	slices.Reverse(kMax)
	kMax = slices.Compact(kMax)
	for _, k := range kMax {
		if k < 1 || k > m.Intermediate {
			return nil, nil, format.Inputf("--k-max %d: want 1 to %d, the neurons of a layer", k, m.Intermediate)
		}
	}
	all := len(o.Selectors) == 0 || slices.Contains(o.Selectors, "all")
	for _, d := range dense {
		for _, k := range kMax {
			from := nearest(bs, k)
			own := bs[from].Manifest.Sparse
			names := append([]string{BestName}, own.Selectors...)
			if !all {
				for _, n := range o.Selectors {
					if !slices.Contains(names, n) {
						return nil, nil, format.Inputf("--selector %s: the bundle %s has %v, and there is %s", n, bs[from].Dir, own.Selectors, BestName)
					}
				}
				names = o.Selectors
			}
			if own.KMax != k && slices.ContainsFunc(names, func(n string) bool { return n == bundle.SelectorPaper }) {
				warnings = append(warnings, fmt.Sprintf("K_max %d is measured with the bundle %s, whose centroids are cut for %d", k, bs[from].Dir, own.KMax))
			}
			for _, n := range names {
				rs = append(rs, o.of(Rung{Selector: n, Dense: d, KMax: k, bundle: from}, bs[from].Manifest)...)
			}
		}
	}
	return rs, warnings, nil
}

// of lists the rungs of one selector of a bundle.
func (o Options) of(r Rung, m *bundle.Manifest) (rs []Rung) {
	switch r.Selector {
	case BestName:
		r.Choice = Perfect
		return []Rung{r}
	case bundle.SelectorStatic:
		r.Choice = Predicted
		return []Rung{r}
	}
	if o.Perfect && r.Selector != bundle.SelectorLookahead { // whose perfect choice is the best one
		p := r
		p.Choice = Perfect
		rs = append(rs, p)
	}
	r.Choice = Predicted
	margins := o.Margins
	if len(margins) == 0 {
		margins = []float32{0}
	}
	for _, b := range append([]Budget{{}}, o.Budgets...) {
		r.ReadCap = b.rows(r.KMax, m.Model.Layers-r.Dense, m.Rows.Stride)
		for _, r.Margin = range margins {
			if !slices.Contains(rs, r) {
				rs = append(rs, r)
			}
		}
	}
	return rs
}

// nearest is the bundle whose K_max is nearest to k.
func nearest(bs []*bundle.Bundle, k int) int {
	best := 0
	for i, b := range bs {
		if abs(b.Manifest.Sparse.KMax-k) < abs(bs[best].Manifest.Sparse.KMax-k) {
			best = i
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }
