package ladder

import (
	"slices"

	"neuroprefetcher/runtime/resident"
)

// tally is what a rung did on one window. The lists have a value for each sparse layer, summed over the tokens that are
// not at position 0.
type tally struct {
	Scored  int       `json:"scored"`
	NLL     float64   `json:"nll"`
	Agree   int       `json:"agree"`           // scored tokens whose likeliest continuation is the dense rung's
	Drift   *float64  `json:"drift,omitempty"` // Σ (change of the target's log-probability against the dense rung)²
	Tokens  int       `json:"tokens"`          // through the sparse layers
	Reads   []int64   `json:"reads,omitempty"`
	Recall  []float64 `json:"recall,omitempty"` // share of importance in the active set
	Hits    []float64 `json:"hits,omitempty"`   // share of the K_max most important neurons in the active set
	IDs     []int64   `json:"ids,omitempty"`    // predicted ids that are the right ones, over Sampled tokens
	Tables  int       `json:"tables,omitempty"` // ids of a token and layer
	Rank    []float64 `json:"rank,omitempty"`   // rank correlation of scores and importance, over Sampled tokens
	Sampled int       `json:"sampled,omitempty"`
}

func newTally(layers int) *tally {
	return &tally{Reads: make([]int64, layers), Recall: make([]float64, layers), Hits: make([]float64, layers), IDs: make([]int64, layers), Rank: make([]float64, layers)}
}

// add holds layer l's active sets against what it computed.
func (ty *tally) add(p *pass, l int, k *picker) {
	f, t, at := p.f, len(p.strip.ids), l-p.r.Dense
	m := f.w.c.Intermediate
	recall, hits := make([]float64, t), make([]float64, t)
	f.pool.Run(t, 16, func(lo, hi int) {
		best := resident.Chooser{KMax: p.r.KMax, Cap: -1}
		top := make([]int32, p.r.KMax)
		for i := lo; i < hi; i++ {
			imp, mask := f.importance[i*m:(i+1)*m], k.mask[i*p.words:(i+1)*p.words]
			all, kept := 0.0, 0.0
			for n, v := range imp {
				all += float64(v)
				if mask[n>>6]>>(n&63)&1 == 1 {
					kept += float64(v)
				}
			}
			recall[i] = 1
			if all > 0 {
				recall[i] = kept / all
			}
			best.Choose(imp, nil, top)
			hit := 0
			for _, n := range top {
				hit += int(mask[n>>6] >> (n & 63) & 1)
			}
			hits[i] = float64(hit) / float64(p.r.KMax)
		}
	})
	for i := range t {
		if !p.whole(i) {
			ty.Recall[at] += recall[i]
			ty.Hits[at] += hits[i]
			ty.Reads[at] += int64(k.reads[i])
		}
	}
	norms := f.norms(l)
	for _, s := range k.seen {
		i := s.row
		ty.Rank[at] += rankCorrelation(s.scores, f.importance[i*m:(i+1)*m])
		if s.ids == nil {
			continue
		}
		right := p.ids[:len(s.ids)]
		ty.Tables = len(s.ids)
		p.sel.vocab.RightIDs(l, f.gate[i*m:(i+1)*m], f.up[i*m:(i+1)*m], norms, right)
		for j, id := range right {
			if s.ids[j] == id {
				ty.IDs[at]++
			}
		}
	}
	if at == 0 {
		ty.Sampled += len(k.seen)
	}
}

// rankCorrelation is Spearman's; equal values are ranked by position, which hardly matters for measured ones.
func rankCorrelation(a, b []float32) float64 {
	ra, rb := ranks(a), ranks(b)
	n, sum := float64(len(a)), 0.0
	for i := range ra {
		d := float64(ra[i] - rb[i])
		sum += d * d
	}
	if n < 2 {
		return 1
	}
	return 1 - 6*sum/(n*(n*n-1))
}

func ranks(v []float32) []int32 {
	order := make([]int32, len(v))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case v[a] < v[b]:
			return -1
		case v[a] > v[b]:
			return 1
		}
		return 0
	})
	r := make([]int32, len(v))
	for i, n := range order {
		r[n] = int32(i)
	}
	return r
}
