package train

import (
	"math"

	"neuroprefetcher/runtime/predictor"
)

// A slow network in float64, written from the definition in runtime/predictor and nothing else. Parameters are in the
// order of the flat slice.
type reference struct {
	s    shape
	flat []float64
}

func (r *reference) part(at *int, n int) []float64 {
	*at += n
	return r.flat[*at-n : *at]
}

func rms(x, weight []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	f := 1 / math.Sqrt(sum/float64(len(x))+predictor.Eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * f
		if weight != nil {
			out[i] *= weight[i]
		}
	}
	return out
}

func times(w []float64, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for r := range out {
		for i, v := range x {
			out[r] += w[r*len(x)+i] * v
		}
	}
	return out
}

// logits are the tables' score rows of one token.
func (r *reference) logits(features [4][]float64, gate0 int) [][]float64 {
	s, at := r.s, 0
	var proj [4][]float64
	for j := range proj {
		proj[j] = r.part(&at, s.t*s.h)
	}
	gate := r.part(&at, s.k0*s.t)
	var w1, w2, norm [predictor.Blocks][]float64
	inner := predictor.Expand * s.t
	for i := range w1 {
		w1[i], w2[i] = r.part(&at, inner*s.t), r.part(&at, s.t*inner)
	}
	heads := r.part(&at, s.rows()*s.t)
	for i := range norm {
		norm[i] = r.part(&at, s.t)
	}
	final, bias := r.part(&at, s.t), r.part(&at, s.rows())
	x := append([]float64(nil), gate[gate0*s.t:(gate0+1)*s.t]...)
	for j, f := range features {
		for i, v := range times(proj[j], rms(f, nil)) {
			x[i] += v
		}
	}
	for b := range w1 {
		a := times(w1[b], rms(x, norm[b]))
		for i, v := range a {
			a[i] = v / (1 + math.Exp(-v))
		}
		for i, v := range times(w2[b], a) {
			x[i] += v
		}
	}
	all := times(heads, rms(x, final))
	var out [][]float64
	for _, k := range s.heads {
		row := make([]float64, k)
		for c := range row {
			row[c] = all[c] + bias[c]
		}
		out, all, bias = append(out, row), all[k:], bias[k:]
	}
	return out
}

// loss is the mean cross-entropy over tokens and tables.
func (r *reference) loss(features [][4][]float64, gate0 []int32, want [][]int32) float64 {
	sum := 0.0
	for i, f := range features {
		for c, row := range r.logits(f, int(gate0[i])) {
			z := 0.0
			for _, v := range row {
				z += math.Exp(v)
			}
			sum += math.Log(z) - row[want[c][i]]
		}
	}
	return sum / float64(len(features)*len(want))
}
