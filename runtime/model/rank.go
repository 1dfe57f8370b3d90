package model

import (
	"math"
)

// Ranked is a token and its log-probability.
type Ranked struct {
	ID      int32
	LogProb float64
}

// Insert puts a token into top, best first and ties to the lower id, which keeps at most k. Offer ids in ascending order.
func Insert(top []Ranked, k int, id int32, score float64) []Ranked {
	if len(top) == k {
		if k == 0 || !(score > top[k-1].LogProb) {
			return top
		}
		top = top[:k-1]
	}
	i := len(top)
	top = append(top, Ranked{})
	for ; i > 0 && score > top[i-1].LogProb; i-- {
		top[i] = top[i-1]
	}
	top[i] = Ranked{id, score}
	return top
}

// Rank returns the log-probability of id under logits (vocab), and the k likeliest tokens appended to top[:0].
func Rank(logits []float32, id int32, k int, top []Ranked) (float64, []Ranked) {
	max, sum := math.Inf(-1), 0.0
	for _, v := range logits {
		if float64(v) > max {
			max = float64(v)
		}
	}
	top = top[:0]
	for i, v := range logits {
		sum += math.Exp(float64(v) - max)
		if k > 0 {
			top = Insert(top, k, int32(i), float64(v))
		}
	}
	norm := max + math.Log(sum)
	for i := range top {
		top[i].LogProb -= norm
	}
	return float64(logits[id]) - norm, top
}

// TopLogProbs is LogProbs, and puts the k likeliest tokens after token i of x (t, H) into top[i]. What top[i] says of
// targets[i] is dst[i], bit for bit. With k = 0 top may be nil.
func (b *Batch) TopLogProbs(dst []float64, top [][]Ranked, k int, x []float32, targets []int32) {
	h, vocab, t := b.m.Config.Hidden, b.m.Config.Vocab, len(targets)
	b.norm(x[:t*h], b.m.Norm, t)
	block := min(b.m.width(), vocab)
	sum := make([]float64, t) // log Σ exp so far
	for i := range sum {
		sum[i] = math.Inf(-1)
		if k > 0 {
			top[i] = top[i][:0]
		}
	}
	for lo := 0; lo < vocab; lo += block {
		n := min(block, vocab-lo)
		out := b.gate[:t*n]
		b.project(out, b.in[:t*h], b.m.Head[lo*h:], nil, t, n, h)
		b.rows(t, func(i int) {
			row := out[i*n : (i+1)*n]
			if at := int(targets[i]) - lo; at >= 0 && at < n {
				dst[i] = float64(row[at])
			}
			if k > 0 {
				for j, v := range row {
					top[i] = Insert(top[i], k, int32(lo+j), float64(v))
				}
			}
			sum[i] = logAddExp(sum[i], logSumExp(row)) // the row is no longer the scores
		})
	}
	for i := range sum {
		dst[i] -= sum[i]
	}
	for i := range top {
		for j := range top[i] {
			top[i][j].LogProb -= sum[i]
		}
	}
}
