package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// gemmOperand makes a rows x cols matrix of values around zero, float16-exact, in memory with the strides wanted: kind
// is "rows" (row-major), "cols" (transposed storage) or "both" (neither stride is 1). The unused elements are NaN. The
// slice ends with the last element.
func gemmOperand(rng *rand.Rand, rows, cols int, f16 bool, kind string, pad int) Matrix {
	m := Matrix{Rows: rows, Cols: cols}
	switch kind {
	case "rows":
		m.RowStride, m.ColStride = cols+pad, 1
	case "cols":
		m.RowStride, m.ColStride = 1, rows+pad
	case "both":
		m.RowStride, m.ColStride = 3*cols+pad, 3
	}
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*m.RowStride + (cols-1)*m.ColStride + 1
	}
	m.F32 = make([]float32, n)
	for i := range m.F32 {
		m.F32[i] = float32(math.NaN())
	}
	for i := range rows {
		for j := range cols {
			v := float32(rng.NormFloat64())
			if rng.IntN(20) == 0 {
				v = 0
			}
			m.F32[i*m.RowStride+j*m.ColStride] = F16Value(F16Bits(v))
		}
	}
	if f16 {
		m.F16 = make([]uint16, n)
		for i, v := range m.F32 {
			m.F16[i] = F16Bits(v)
		}
		m.F32 = nil
	}
	return m
}

func gemmAt(m Matrix, i, j int) float32 {
	p := i*m.RowStride + j*m.ColStride
	if m.F16 != nil {
		return F16Value(m.F16[p])
	}
	return m.F32[p]
}

const gemmCanary = -12345.5

// gemmResult makes a C with stride cols+pad, old values where live, canaries elsewhere, before and after included. It
// returns all of the memory too.
func gemmResult(rng *rand.Rand, rows, cols, pad int) (all []float32, c Matrix) {
	const edge = 64
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*(cols+pad) + cols
	}
	all = make([]float32, n+2*edge)
	for i := range all {
		all[i] = gemmCanary
	}
	c = F32Matrix(all[edge:edge+n:edge+n], rows, cols, cols+pad)
	for i := range rows {
		for j := range cols {
			c.F32[i*c.RowStride+j] = float32(rng.NormFloat64())
		}
	}
	return all, c
}

// checkGemm compares with float64 sums. The allowance is the usual bound for sums in blocks, times the sum of absolute
// products; it returns the worst error as a fraction of it.
func checkGemm(t *testing.T, all []float32, c, a, b Matrix, old []float32, accumulate bool) (worst float64) {
	t.Helper()
	live := 0
	for i := range c.Rows {
		for j := range c.Cols {
			live++
			got := float64(c.F32[i*c.RowStride+j])
			var sum, abs float64
			if accumulate {
				sum = float64(old[64+i*c.RowStride+j])
				abs = math.Abs(sum)
			}
			for k := range a.Cols {
				p := float64(gemmAt(a, i, k)) * float64(gemmAt(b, k, j))
				sum += p
				abs += math.Abs(p)
			}
			steps := float64(2*min(a.Cols, GemmKC) + a.Cols/GemmKC + 2)
			allow := abs * steps * 0x1p-24
			if err := math.Abs(got - sum); err > 0 || math.IsNaN(got) {
				if !(err <= allow) {
					t.Fatalf("(%d x %d)(%d x %d) element %d, %d: got %g, want %g, allowed error %g",
						a.Rows, a.Cols, b.Rows, b.Cols, i, j, got, sum, allow)
				}
				worst = max(worst, err/allow)
			}
		}
	}
	same := 0
	for i, v := range all {
		if v == gemmCanary && old[i] == gemmCanary {
			same++
		}
	}
	if same+live != len(all) {
		t.Fatalf("(%d x %d)(%d x %d): %d elements outside C changed", a.Rows, a.Cols, b.Rows, b.Cols, len(all)-same-live)
	}
	return worst
}

func TestGemmAgainstFloat64(t *testing.T) {
	var shapes [][3]int // m, n, k
	small := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17}
	for i, m := range small {
		for j, n := range small {
			shapes = append(shapes, [3]int{m, n, small[(i*7+j*3)%len(small)]})
		}
	}
	shapes = append(shapes, [][3]int{
		{1, 31, 255}, {1, 32, 256}, {1, 33, 257}, {2, 48, 511}, {5, 47, 512}, {6, 49, 513}, {7, 64, 264}, {24, 96, 7},
		{25, 97, 9}, {263, 17, 33}, {264, 33, 8}, {265, 31, 40}, {529, 19, 5}, {3, 530, 300}, {70, 600, 40}, {12, 32, 1025},
	}...)
	kinds := []string{"rows", "cols", "both"}
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		p := NewPool(2)
		defer p.Close()
		worst := 0.0
		for n, s := range shapes {
			for combo := range 3 * 3 * 2 * 2 * 2 {
				if (s[0]*s[1]*s[2] > 4000 || testing.Short()) && combo%7 != n%7 {
					continue // a different seventh for every large shape, with -short for every shape
				}
				kindA, kindB := kinds[combo%3], kinds[combo/3%3]
				a16, b16, accumulate := combo/9%2 == 1, combo/18%2 == 1, combo/36 == 1
				a := gemmOperand(rng, s[0], s[2], a16, kindA, n%4)
				b := gemmOperand(rng, s[2], s[1], b16, kindB, n%3)
				all, c := gemmResult(rng, s[0], s[1], n%5)
				old := slices.Clone(all)
				pool := p
				if combo%2 == 0 {
					pool = nil
				}
				Gemm(pool, c, a, b, accumulate)
				worst = max(worst, checkGemm(t, all, c, a, b, old, accumulate))
			}
		}
		t.Logf("worst error: %.1f %% of the allowance", 100*worst)
	})
}

// fusedExact is a*b+c with one rounding, in plain arithmetic: the product is exact in float64, the sum is rounded to odd
// there, so that rounding again to float32 is right.
func fusedExact(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	bb := s - p
	err := (p - (s - bb)) + (q - bb)
	if err != 0 && math.Float64bits(s)&1 == 0 {
		toward := math.Inf(1)
		if err < 0 {
			toward = math.Inf(-1)
		}
		s = math.Nextafter(s, toward)
	}
	return float32(s)
}

// The assembly is held to the definition bit for bit: one rounding per step, blocks of GemmKC, then one addition.
func TestGemmIsTheChainItClaims(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		if Level() == "generic" {
			t.Log("the generic level rounds as Go does; only fused levels are held to this")
			return
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for _, s := range [][3]int{{13, 37, 9}, {7, 33, 255}, {6, 16, 256}, {13, 35, 257}, {5, 9, 700}} {
			for _, accumulate := range []bool{false, true} {
				a := gemmOperand(rng, s[0], s[2], false, "rows", 0)
				b := gemmOperand(rng, s[2], s[1], true, "cols", 0)
				_, c := gemmResult(rng, s[0], s[1], 0)
				old := slices.Clone(c.F32)
				Gemm(nil, c, a, b, accumulate)
				for i := range s[0] {
					for j := range s[1] {
						var want float32
						if accumulate {
							want = old[i*c.RowStride+j]
						}
						for k0 := 0; k0 < s[2]; k0 += GemmKC {
							var sum float32
							for k := k0; k < min(k0+GemmKC, s[2]); k++ {
								sum = fusedExact(gemmAt(a, i, k), gemmAt(b, k, j), sum)
							}
							want += sum
						}
						if got := c.F32[i*c.RowStride+j]; got != want {
							t.Fatalf("%v accumulate %v element %d, %d: got %x, want %x", s, accumulate, i, j, got, want)
						}
					}
				}
			}
		}
	})
}

// sameBits fails unless got and want are equal bit for bit.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g (%08x), want %g (%08x)", what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestGemmRowsAndColumnsAreIndependent(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		const m, n, k = 300, 135, 333
		for _, kind := range []string{"rows", "cols"} {
			a := gemmOperand(rng, m, k, false, "rows", 0)
			b := gemmOperand(rng, k, n, true, kind, 0)
			whole := F32Matrix(make([]float32, m*n), m, n, n)
			Gemm(nil, whole, a, b, false)
			for _, rows := range []int{1, 2, 7, 64, 265} {
				for _, at := range []int{0, 1, 5, m - rows} {
					c := F32Matrix(make([]float32, rows*n), rows, n, n)
					part := a
					part.Rows, part.F32 = rows, a.F32[at*a.RowStride:]
					Gemm(nil, c, part, b, false)
					sameBits(t, fmt.Sprintf("%d rows from %d", rows, at), c.F32, whole.F32[at*n:][:rows*n])
				}
			}
			for _, cols := range []int{1, 9, 17, 40} {
				for _, at := range []int{0, 1, 15, n - cols} {
					c := F32Matrix(make([]float32, m*cols), m, cols, cols)
					part := b
					part.Cols, part.F16 = cols, b.F16[at*b.ColStride:]
					Gemm(nil, c, a, part, false)
					for i := range m {
						sameBits(t, fmt.Sprintf("%d columns from %d, row %d", cols, at, i), c.F32[i*cols:][:cols], whole.F32[i*n+at:][:cols])
					}
				}
			}
		}
	})
}

func TestGemmThreadsAreIndependent(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		for _, s := range [][3]int{{3, 1000, 300}, {70, 530, 260}, {600, 40, 129}, {1, 1, 700}, {300, 700, 64}} {
			a := gemmOperand(rng, s[0], s[2], false, "rows", 1)
			b := gemmOperand(rng, s[2], s[1], true, "cols", 1)
			_, want := gemmResult(rng, s[0], s[1], 0)
			old := slices.Clone(want.F32)
			Gemm(nil, want, a, b, true)
			for _, threads := range []int{1, 2, 3, 16} {
				p := NewPool(threads)
				c := F32Matrix(slices.Clone(old), s[0], s[1], s[1])
				Gemm(p, c, a, b, true)
				p.Close()
				sameBits(t, fmt.Sprintf("%v with %d threads", s, threads), c.F32, want.F32)
			}
		}
	})
}

func TestGemmInnerDimensionMayBeCut(t *testing.T) {
	if 1024%GemmKC != 0 {
		t.Fatalf("GemmKC = %d does not divide 1024, at whose multiples callers cut", GemmKC)
	}
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		const m, n, k = 19, 50, 2500
		a := gemmOperand(rng, m, k, false, "rows", 0)
		b := gemmOperand(rng, k, n, true, "rows", 0)
		want := F32Matrix(make([]float32, m*n), m, n, n)
		Gemm(nil, want, a, b, false)
		for _, step := range []int{GemmKC, 3 * GemmKC, 1024, 2048} {
			c := F32Matrix(make([]float32, m*n), m, n, n)
			for k0 := 0; k0 < k; k0 += step {
				w := min(step, k-k0)
				Gemm(nil, c, F32Matrix(a.F32[k0:], m, w, k), F16Matrix(b.F16[k0*n:], w, n, n), k0 > 0)
			}
			sameBits(t, fmt.Sprintf("cut at multiples of %d", step), c.F32, want.F32)
		}
	})
}

// Infinities and NaN must reach exactly the elements they belong to; the zeros that complete tiles must not make more.
func TestGemmSpecialValues(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const m, n, k = 7, 19, 11
		rng := rand.New(rand.NewPCG(11, 12))
		a := gemmOperand(rng, m, k, false, "rows", 0)
		b := gemmOperand(rng, k, n, true, "cols", 0)
		a.F32[6*k+10] = float32(math.NaN())
		a.F32[2*k+3] = float32(math.Inf(1))
		for i := range b.F16 {
			if b.F16[i]&0x7fff == 0 {
				b.F16[i] = 0x3c00
			}
		}
		c := F32Matrix(make([]float32, m*n), m, n, n)
		Gemm(nil, c, a, b, false)
		for i := range m {
			for j := range n {
				v := float64(c.F32[i*n+j])
				switch {
				case i == 6 && !math.IsNaN(v), i == 2 && !math.IsInf(v, 0), i != 6 && i != 2 && (math.IsNaN(v) || math.IsInf(v, 0)):
					t.Fatalf("element %d, %d is %g", i, j, v)
				}
			}
		}
	})
}

// Operands lie against pages that must not be touched: reading or writing one element outside is a fault.
func TestGemmStaysInside(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(13, 14))
		arenaA, arenaB, arenaC := newArena(t), newArena(t), newArena(t)
		place := func(a *arena, m Matrix, atEnd bool) Matrix {
			if m.F16 != nil {
				data := take[uint16](a, len(m.F16), atEnd)
				copy(data, m.F16)
				m.F16 = data
			} else {
				data := take[float32](a, len(m.F32), atEnd)
				copy(data, m.F32)
				m.F32 = data
			}
			return m
		}
		for n, s := range [][3]int{{1, 1, 1}, {6, 16, 8}, {6, 16, 9}, {5, 15, 7}, {7, 17, 16}, {12, 32, 24}, {13, 33, 25}, {18, 32, 256}, {24, 33, 257}, {8, 8, 264}, {64, 5, 40}} {
			for combo := range 3 * 3 * 2 * 2 * 2 {
				kinds := []string{"rows", "cols", "both"}
				atEnd := combo/36 == 0
				a := place(arenaA, gemmOperand(rng, s[0], s[2], combo/9%2 == 1, kinds[combo%3], n%2), atEnd)
				b := place(arenaB, gemmOperand(rng, s[2], s[1], combo/18%2 == 1, kinds[combo/3%3], n%2), atEnd)
				c := F32Matrix(take[float32](arenaC, s[0]*s[1], atEnd), s[0], s[1], s[1])
				clear(c.F32)
				Gemm(nil, c, a, b, combo%2 == 0)
				for i, v := range c.F32 {
					if math.IsNaN(float64(v)) {
						t.Fatalf("%v: element %d comes from outside the operands", s, i)
					}
				}
				arenaC.intact(t, fmt.Sprintf("gemm %v", s))
			}
		}
	})
}

func TestGemmAllocatesNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		p := NewPool(2)
		defer p.Close()
		a := F32Matrix(make([]float32, 30*600), 30, 600, 600)
		b := F16Matrix(make([]uint16, 600*600), 600, 600, 600)
		c := F32Matrix(make([]float32, 30*600), 30, 600, 600)
		for range 20 {
			Gemm(p, c, a, b.T(), false) // every thread gets its scratch
		}
		if n := testing.AllocsPerRun(50, func() { Gemm(p, c, a, b.T(), false) }); n >= 1 {
			t.Fatalf("%v allocations per call", n)
		}
	})
}

func TestGemmRefusesWrongShapes(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(){
		"inner":     func() { Gemm(nil, F32Matrix(f(4), 2, 2, 2), F32Matrix(f(6), 2, 3, 3), F32Matrix(f(8), 4, 2, 2), false) },
		"short":     func() { F32Matrix(f(5), 2, 3, 3) },
		"short f16": func() { F16Matrix(make([]uint16, 5), 2, 3, 3) },
		"C rows":    func() { Gemm(nil, F32Matrix(f(4), 1, 2, 2), F32Matrix(f(6), 2, 3, 3), F32Matrix(f(6), 3, 2, 2), false) },
		"C stride": func() {
			Gemm(nil, F32Matrix(f(4), 2, 2, 2).T(), F32Matrix(f(6), 2, 3, 3), F32Matrix(f(6), 3, 2, 2), false)
		},
		"C overlap": func() { Gemm(nil, F32Matrix(f(4), 2, 2, 1), F32Matrix(f(6), 2, 3, 3), F32Matrix(f(6), 3, 2, 2), false) },
		"C float16": func() {
			Gemm(nil, F16Matrix(make([]uint16, 4), 2, 2, 2), F32Matrix(f(6), 2, 3, 3), F32Matrix(f(6), 3, 2, 2), false)
		},
		"negative": func() { F32Matrix(f(5), -1, 3, 3) },
		"two": func() {
			Gemm(nil, F32Matrix(f(1), 1, 1, 1), Matrix{1, 1, f(1), make([]uint16, 1), 1, 1}, F32Matrix(f(1), 1, 1, 1), false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			call()
		})
	}
}

// Shapes: SmolLM2-135M's MLP at 512 tokens, Mistral-7B's rows, squares, and few rows.
func BenchmarkGemm(b *testing.B) {
	for _, s := range []struct {
		name    string
		m, n, k int
		t       bool
	}{
		{"1024x1024x1024", 1024, 1024, 1024, false},
		{"512x576x1536T", 512, 1536, 576, true},
		{"512x1536x576", 512, 576, 1536, false},
		{"1x576x1536T", 1, 1536, 576, true},
		{"1x4096x1024T", 1, 1024, 4096, true},
		{"4x4096x1024T", 4, 1024, 4096, true},
		{"16x4096x1024T", 16, 1024, 4096, true},
		{"16x1024x4096", 16, 4096, 1024, false},
		{"512x4096x4096T", 512, 4096, 4096, true},
		{"128x4096x1024T", 128, 1024, 4096, true},
		{"128x1024x4096", 128, 4096, 1024, false},
	} {
		for _, threads := range []int{1, 2} {
			for _, dtype := range []string{"f32", "f16"} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d", s.name, dtype, threads), func(b *testing.B) {
					p := NewPool(threads)
					defer p.Close()
					rng := rand.New(rand.NewPCG(1, 1))
					x := gemmOperand(rng, s.m, s.k, false, "rows", 0)
					kind := "rows"
					if s.t {
						kind = "cols"
					}
					w := gemmOperand(rng, s.k, s.n, dtype == "f16", kind, 0)
					c := F32Matrix(make([]float32, s.m*s.n), s.m, s.n, s.n)
					for b.Loop() {
						Gemm(p, c, x, w, false)
					}
					b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
