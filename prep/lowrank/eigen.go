package lowrank

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"neuroprefetcher/format"
)

const (
	// A Krylov space of krylovWidth·r dimensions, at least krylovLeast, grown from a sixteenth of them of random vectors,
	// holds what the r leading eigenvectors explain to about 1e-3 even where the eigenvalues hardly fall.
	krylovWidth = 2
	krylovDepth = 16
	krylovLeast = 256
	// A space of more than this share of all dimensions saves nothing over the whole problem.
	krylovShare = 0.7
)

// Leading returns the r largest eigenvalues of a positive semidefinite matrix, descending, and their eigenvectors in the
// columns of vectors (H, r). Where r is a large share of H they are exact, and values then has all H; else they are the
// best that a block Krylov space holds, in O(H²·r) operations instead of O(H³).
func Leading(k *mat.SymDense, r int) (values []float64, vectors *mat.Dense, err error) {
	h, _ := k.Dims()
	dims := max(krylovWidth*r, krylovLeast)
	if float64(dims) > krylovShare*float64(h) {
		all, vec, err := eigen(k)
		if err != nil {
			return nil, nil, err
		}
		return all, mat.DenseCopyOf(vec.Slice(0, h, 0, r)), nil
	}
	block := (dims + krylovDepth - 1) / krylovDepth
	dims = block * krylovDepth
	q, kq := mat.NewDense(h, dims, nil), mat.NewDense(h, dims, nil)
	rng := rand.New(rand.NewPCG(1, uint64(r)))
	next, size, full := mat.NewDense(h, block, nil), mat.Norm(k, 2), mat.DenseCopyOf(k) // products of SymDense are slow
	for at := 0; at < dims; at += block {
		// Each pass mends what rounding left of the one before. A column that adds nothing to the space, as every one does
		// at first and those of a matrix of low rank do in the end, begins anew at random.
		for pass := range 3 {
			if at > 0 {
				done := q.Slice(0, h, 0, at)
				var c, z mat.Dense
				c.Mul(done.T(), next)
				z.Mul(done, &c)
				next.Sub(next, &z)
			}
			if pass == 0 {
				for j := range block {
					if mat.Norm(next.ColView(j), 2) <= 1e-12*size {
						for i := range h {
							next.Set(i, j, rng.NormFloat64())
						}
					}
				}
			}
			orthonormal(next)
		}
		q.Slice(0, h, at, at+block).(*mat.Dense).Copy(next)
		next.Mul(full, q.Slice(0, h, at, at+block))
		kq.Slice(0, h, at, at+block).(*mat.Dense).Copy(next)
	}
	var t mat.Dense
	t.Mul(q.T(), kq)
	ritz, vec, err := eigen(Symmetric(&t))
	if err != nil {
		return nil, nil, err
	}
	vectors = mat.NewDense(h, r, nil)
	vectors.Mul(q, vec.Slice(0, dims, 0, r))
	return ritz[:r], vectors, nil
}

// eigen solves the whole problem: values descending, negative ones as zero, and their eigenvectors in columns.
func eigen(k *mat.SymDense) (values []float64, vectors *mat.Dense, err error) {
	var eig mat.EigenSym
	if !eig.Factorize(k, true) {
		return nil, nil, format.Inputf("the eigenvalues of the calibration's moments do not converge: calibrate again, with more text")
	}
	n, _ := k.Dims()
	values, vectors = make([]float64, n), mat.NewDense(n, n, nil)
	var vec mat.Dense
	eig.VectorsTo(&vec)
	for j, v := range eig.Values(nil) { // ascending
		values[n-1-j] = max(v, 0)
		for i := range n {
			vectors.Set(i, n-1-j, vec.At(i, j))
		}
	}
	return values, vectors, nil
}

// Symmetric is the symmetric part of a.
func Symmetric(a *mat.Dense) *mat.SymDense {
	n, _ := a.Dims()
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			s.SetSym(i, j, (a.At(i, j)+a.At(j, i))/2)
		}
	}
	return s
}

// orthonormal replaces the columns of a by an orthonormal basis of them.
func orthonormal(a *mat.Dense) {
	raw := a.RawMatrix()
	g := blas64.General{Rows: raw.Rows, Cols: raw.Cols, Stride: raw.Stride, Data: raw.Data}
	tau, size := make([]float64, g.Cols), make([]float64, 1)
	lapack64.Geqrf(g, tau, size, -1)
	work := make([]float64, int(size[0]))
	lapack64.Geqrf(g, tau, work, len(work))
	lapack64.Orgqr(g, tau, size, -1)
	if int(size[0]) > len(work) {
		work = make([]float64, int(size[0]))
	}
	lapack64.Orgqr(g, tau, work, len(work))
}
