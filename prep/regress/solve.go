package regress

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/lowrank"
)

// leastRidge is added to the correlation matrix of the source, whose diagonal is 1.
const leastRidge = 1e-4

// problem is one layer: inputs x (H) at the source, outputs y = W·t of the MLP's normed stream t. Every matrix is about
// centred variables, and x is divided by its standard deviation.
type problem struct {
	h      int
	invDev []float64     // (H) 1 ÷ standard deviation of x; 0 for an element that is constant
	meanX  []float64     // (H) before the division
	meanT  []float64     // (H)
	gram   *mat.SymDense // (H, H) correlation of x
	cross  *mat.Dense    // (H, H) E[x·tᵀ]
	covT   []float32     // (H, H) covariance of t
	ridge  float64       // leastRidge, or what it takes
	chol   *mat.TriDense // lower Cholesky factor of gram + ridge
	base   *mat.Dense    // (H, H) L⁻¹·cross: what ridge regression maps a whitened input to
	pool   *kernels.Pool
}

// newProblem takes the moments ÷ tokens.
func newProblem(pool *kernels.Pool, h int, gramX, meanX, gramT, meanT, cross []float64) (*problem, error) {
	p := &problem{h: h, invDev: make([]float64, h), meanX: meanX, meanT: meanT, pool: pool}
	g := make([]float64, h*h)
	for i := range h {
		// what rounding leaves of a constant counts as constant
		if v := gramX[i*h+i] - meanX[i]*meanX[i]; v > 1e-9*gramX[i*h+i] {
			p.invDev[i] = 1 / math.Sqrt(v)
		}
	}
	c, t := make([]float64, h*h), make([]float32, h*h)
	for i := range h {
		for j := range h {
			g[i*h+j] = (gramX[i*h+j] - meanX[i]*meanX[j]) * p.invDev[i] * p.invDev[j]
			c[i*h+j] = (cross[i*h+j] - meanX[i]*meanT[j]) * p.invDev[i]
			t[i*h+j] = float32(gramT[i*h+j] - meanT[i]*meanT[j])
		}
	}
	p.gram, p.cross, p.covT = mat.NewSymDense(h, g), mat.NewDense(h, h, c), t
	// Text that hardly varies leaves correlations that are rounding alone, and no matrix of a real variable: more ridge
	// turns the map towards the mean, which is then all there is to know.
	reg := mat.NewSymDense(h, nil)
	var chol mat.Cholesky
	for p.ridge = leastRidge; ; p.ridge *= 10 {
		reg.CopySym(p.gram)
		for i := range h {
			reg.SetSym(i, i, reg.At(i, i)+p.ridge)
		}
		if chol.Factorize(reg) {
			break
		}
		if p.ridge > 1e6*float64(h) {
			return nil, format.Inputf("the moments are not positive definite: run npprep moments again, with more text")
		}
	}
	p.chol = new(mat.TriDense)
	chol.LTo(p.chol)
	p.base = new(mat.Dense)
	p.base.CloneFrom(p.cross)
	solveLower(p.chol, p.base)
	return p, nil
}

// solveLower replaces b by L⁻¹·b.
func solveLower(l *mat.TriDense, b *mat.Dense) {
	x := new(mat.Dense)
	if err := x.Solve(l, b); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			panic(err)
		}
	}
	b.Copy(x)
}

// output is one projection of the layer: y = W·t.
type output struct {
	w        []float32 // (M, H) with the norm's weight in its columns
	mean     []float64 // (M) of y
	variance []float64 // (M) of y
}

func (p *problem) output(w []float32) *output {
	h, m := p.h, len(w)/p.h
	o := &output{w: w, mean: make([]float64, m), variance: make([]float64, m)}
	wn := make([]float32, m*h)
	kernels.Gemm(p.pool, kernels.F32Matrix(wn, m, h, h), kernels.F32Matrix(w, m, h, h), kernels.F32Matrix(p.covT, h, h, h), false)
	p.pool.Run(m, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for j, v := range w[i*h : (i+1)*h] {
				o.mean[i] += float64(v) * p.meanT[j]
				o.variance[i] += float64(v) * float64(wn[i*h+j])
			}
			o.variance[i] = max(o.variance[i], 0)
		}
	})
	return o
}

// rounded is a matrix after rounding; values are (rows, cols).
type rounded interface{ Values() []float64 }

// rounding rounds x (rows, cols).
type rounding func(x []float64, rows, cols int) rounded

// quantise rounds to 4-bit codes.
func quantise(x []float64, rows, cols int) rounded { return lowrank.Encode(x, rows, cols) }

// factors are the quantised rank-r map of one projection: ŷ = offset + Out·(In·(x·invDev)).
type factors struct {
	rank     int
	in, out  rounded   // (r, H), (M, r)
	offset   []float64 // (M)
	residual []float64 // (M) E[(y − ŷ)²]
	spectrum []float64 // weighted energy that each dimension explains, descending (at least r)
}

// solve finds the rank-r map that leaves the least Σ_j weight_j²·E[(y_j − ŷ_j)²].
func (p *problem) solve(o *output, weight []float64, rank int, q rounding) (*factors, error) {
	h, m := p.h, len(o.mean)
	// The whitened map is base·Wᵀ; its leading left singular vectors under the weights are the eigenvectors of
	// base·(Wᵀ·weight²·W)·baseᵀ.
	ww := make([]float32, m*h)
	p.pool.Run(m, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for j, v := range o.w[i*h : (i+1)*h] {
				ww[i*h+j] = float32(weight[i]) * v
			}
		}
	})
	s := make([]float32, h*h)
	wm := kernels.F32Matrix(ww, m, h, h)
	kernels.Gemm(p.pool, kernels.F32Matrix(s, h, h, h), wm.T(), wm, false)
	var tmp, k mat.Dense
	tmp.Mul(p.base, wide(s, h, h))
	k.Mul(&tmp, p.base.T())
	values, u, err := lowrank.Leading(lowrank.Symmetric(&k), rank)
	if err != nil {
		return nil, err
	}
	f := &factors{rank: rank, spectrum: values}
	// In = Uᵀ·L⁻¹, that is Inᵀ = L⁻ᵀ·U.
	var in mat.Dense
	if err := in.Solve(p.chol.T(), u); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			return nil, err
		}
	}
	inT := mat.DenseCopyOf(in.T())
	f.in = q(inT.RawMatrix().Data, rank, h)
	return f, p.refit(o, f, q)
}

// refit solves Out for the rounded In, rounds it, and takes the residuals of what is left.
func (p *problem) refit(o *output, f *factors, q rounding) error {
	h, m, r := p.h, len(o.mean), f.rank
	in := mat.NewDense(r, h, f.in.Values())
	var ig, gz, cz mat.Dense // gz = E[z·zᵀ], cz = E[z·tᵀ]
	ig.Mul(in, p.gram)
	gz.Mul(&ig, in.T())
	cz.Mul(in, p.cross)
	reg := mat.NewSymDense(r, nil)
	var ii mat.Dense
	ii.Mul(in, in.T())
	for i := range r {
		for j := range i + 1 {
			reg.SetSym(i, j, (gz.At(i, j)+gz.At(j, i))/2+p.ridge*ii.At(i, j))
		}
	}
	// rounding may make two rows of In the same: keep the matrix positive definite
	var chol mat.Cholesky
	for more := 1e-9; ; more *= 10 {
		for i := range r {
			reg.SetSym(i, i, reg.At(i, i)*(1+more)+1e-12)
		}
		if chol.Factorize(reg) {
			break
		}
		if more > 1 {
			return format.Inputf("the rounded factors are not independent: lower --rank")
		}
	}
	var t mat.Dense // (r, H)
	if err := chol.SolveTo(&t, &cz); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			return err
		}
	}
	// Out = W·tᵀ, and E[y·zᵀ] = W·czᵀ.
	w := kernels.F32Matrix(o.w, m, h, h)
	out, yz := make([]float32, m*r), make([]float32, m*r)
	kernels.Gemm(p.pool, kernels.F32Matrix(out, m, r, r), w, kernels.F32Matrix(narrow(&t), r, h, h).T(), false)
	kernels.Gemm(p.pool, kernels.F32Matrix(yz, m, r, r), w, kernels.F32Matrix(narrow(&cz), r, h, h).T(), false)
	f.out = q(wide(out, m, r).RawMatrix().Data, m, r)
	back := f.out.Values()
	for i, v := range back {
		out[i] = float32(v)
	}
	og := make([]float32, m*r)
	kernels.Gemm(p.pool, kernels.F32Matrix(og, m, r, r), kernels.F32Matrix(out, m, r, r), kernels.F32Matrix(narrow(&gz), r, r, r), false)
	// The offset takes in the mean, so that x need not be centred when the map is used.
	z := make([]float64, r)
	for i := range z {
		for j := range h {
			z[i] += in.At(i, j) * p.meanX[j] * p.invDev[j]
		}
	}
	f.offset, f.residual = make([]float64, m), make([]float64, m)
	p.pool.Run(m, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			b, v := o.mean[i], o.variance[i]
			for j, a := range back[i*r : (i+1)*r] {
				b -= a * z[j]
				v += a * (float64(og[i*r+j]) - 2*float64(yz[i*r+j]))
			}
			f.offset[i], f.residual[i] = b, min(max(v, 1e-6*o.variance[i]), max(v, o.variance[i]))
		}
	})
	return nil
}

func wide(x []float32, rows, cols int) *mat.Dense {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return mat.NewDense(rows, cols, y)
}

func narrow(x *mat.Dense) []float32 {
	raw := x.RawMatrix()
	y := make([]float32, 0, raw.Rows*raw.Cols)
	for i := range raw.Rows {
		for _, v := range raw.Data[i*raw.Stride : i*raw.Stride+raw.Cols] {
			y = append(y, float32(v))
		}
	}
	return y
}

// siluRMS is √E[silu(g)²] for a normal g, by the trapezium rule over eight standard deviations.
func siluRMS(mean, variance float64) float64 {
	const steps = 64
	dev, sum, total := math.Sqrt(variance), 0.0, 0.0
	for i := range steps + 1 {
		z := 8 * (float64(i)/steps - 0.5)
		p := math.Exp(-z * z / 2)
		g := mean + dev*z
		s := g / (1 + math.Exp(-g))
		sum, total = sum+p*s*s, total+p
	}
	return math.Sqrt(sum / total)
}
