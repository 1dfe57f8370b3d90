package vocab

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/prep/lowrank"
	"neuroprefetcher/runtime/predictor"
)

const (
	// shrink is how many tokens of the whole text's mean are mixed into every centroid's: few members say little.
	shrink = 4
	// leastLog keeps logarithms of what never happens finite; energies are relative to the largest of a row.
	leastLog = 1e-9
)

// expectations turns sums over the members of each centroid (K, M) into means, those of few members drawn towards the
// mean of all.
func expectations(sums []float32, count []int32, m int) []float64 {
	k, total := len(count), 0.0
	all := make([]float64, m)
	for c, n := range count {
		total += float64(n)
		for j, v := range sums[c*m : (c+1)*m] {
			all[j] += float64(v)
		}
	}
	out := make([]float64, k*m)
	for c, n := range count {
		for j, v := range sums[c*m : (c+1)*m] {
			mean := 0.0
			if total > 0 {
				mean = all[j] / total
			}
			out[c*m+j] = (float64(v) + shrink*mean) / (float64(n) + shrink)
		}
	}
	return out
}

// logarithms are of x (K, M), with what is zero or nearly so kept finite.
func logarithms(x []float64) []float64 {
	top := 0.0
	for _, v := range x {
		top = max(top, v)
	}
	out := make([]float64, len(x))
	if top > 0 {
		for i, v := range x {
			out[i] = math.Log(max(v, leastLog*top))
		}
	}
	return out
}

// rows are the score rows of one table as low-rank factors: row c is base + out·mix[:, c].
type rows struct {
	base     []float64       // (M)
	mix, out *lowrank.Matrix // (r, K), (M, r)
	left     float64         // share of the weighted variance over centroids that the factors leave
}

// fitRows makes factors of rank r of x (K, M), whose centroids occur count times. A centroid weighs as often as it
// occurs, but within a factor of eight of the others, as the network's probabilities are not the frequencies of text.
func fitRows(x []float64, count []int32, m, r int) (*rows, error) {
	k := len(count)
	total := 0.0
	for _, n := range count {
		total += float64(n)
	}
	w, sum := make([]float64, k), 0.0
	for c, n := range count {
		w[c] = min(max(float64(n)*float64(k)/max(total, 1), 0.35), 2.8)
		sum += w[c]
	}
	f := &rows{base: make([]float64, m)}
	for c := range k {
		for j, v := range x[c*m : (c+1)*m] {
			f.base[j] += w[c] / sum * v
		}
	}
	d := mat.NewDense(k, m, nil) // √w·(x − base)
	for c := range k {
		for j, v := range x[c*m : (c+1)*m] {
			d.Set(c, j, math.Sqrt(w[c])*(v-f.base[j]))
		}
	}
	var g mat.Dense
	g.Mul(d, d.T())
	r = min(r, k, m)
	_, u, err := lowrank.Leading(lowrank.Symmetric(&g), r)
	if err != nil {
		return nil, err
	}
	mix := make([]float64, r*k)
	for i := range r {
		for c := range k {
			mix[i*k+c] = u.At(c, i) / math.Sqrt(w[c])
		}
	}
	f.mix = lowrank.Encode(mix, r, k)
	// out is solved again for the rounded mix: the least Σ_c w_c·|x_c − base − out·mix_c|².
	a := mat.NewDense(k, r, nil) // √w·mixᵀ
	for i, v := range f.mix.Values() {
		a.Set(i%k, i/k, v*math.Sqrt(w[i%k]))
	}
	var aa, ad, out mat.Dense
	aa.Mul(a.T(), a)
	ad.Mul(a.T(), d)
	reg := lowrank.Symmetric(&aa)
	var chol mat.Cholesky
	for more := 1e-9; ; more *= 10 {
		for i := range r {
			reg.SetSym(i, i, aa.At(i, i)*(1+more)+1e-12)
		}
		if chol.Factorize(reg) {
			break
		}
	}
	if err := chol.SolveTo(&out, &ad); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			return nil, err
		}
	}
	f.out = lowrank.Encode(mat.DenseCopyOf(out.T()).RawMatrix().Data, m, r)
	back := mat.NewDense(m, r, f.out.Values())
	var got mat.Dense
	got.Mul(a, back.T())
	got.Sub(&got, d)
	if all := mat.Norm(d, 2); all > 0 {
		f.left = math.Pow(mat.Norm(&got, 2)/all, 2)
	}
	return f, nil
}

// entries are a layer's tensors: the rows of its tables, and the sum of their bases and of more.
func entries(l int, tables []string, fits []*rows, more []float64) []tensors.Entry {
	base := append([]float64(nil), more...)
	var out []tensors.Entry
	for i, f := range fits {
		for j, v := range f.base {
			base[j] += v
		}
		out = append(out, f.mix.Entries(predictor.MixName(tables[i], l))...)
		out = append(out, f.out.Entries(predictor.RowName(tables[i], l))...)
	}
	return append(out, lowrank.Halves(predictor.BaseName(l), base))
}
