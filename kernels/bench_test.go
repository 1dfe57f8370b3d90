package kernels

import (
	"fmt"
	"testing"
)

// Shapes: Mistral-7B (H 4096, M 14336, heads of 128) and SmolLM2-135M (H 576,
// M 1536, heads of 64). SetBytes counts the weights or tables that are read;
// "cold" walks through 256 MiB, "hot" stays in the cache.

func perLevel(b *testing.B, f func(b *testing.B)) {
	for _, l := range Levels() {
		b.Run(l, func(b *testing.B) {
			defer SetLevel(l)()
			b.ReportAllocs()
			f(b)
		})
	}
}

func benchF16(n int) []uint16 {
	w := make([]uint16, n)
	for i := range w {
		w[i] = uint16(0x2800 + i*7919%0x0fff)
	}
	return w
}

func benchF32(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%31) / 16
	}
	return x
}

func BenchmarkDotF16(b *testing.B) {
	for _, n := range []int{576, 4096} {
		x, w := benchF32(n), benchF16(n)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(int64(2 * n))
				for b.Loop() {
					DotF16(x, w)
				}
			})
		})
	}
}

// BenchmarkRead is what the cold numbers are measured against: one thread
// that only reads 256 MiB.
func BenchmarkRead(b *testing.B) {
	w := BytesU64(U16Bytes(benchF16(128 << 20)))
	b.SetBytes(int64(8 * len(w)))
	var s0, s1, s2, s3 uint64
	for b.Loop() {
		for q := w; len(q) >= 8; q = q[8:] {
			s0 += q[0] + q[4]
			s1 += q[1] + q[5]
			s2 += q[2] + q[6]
			s3 += q[3] + q[7]
		}
	}
	if s0+s1+s2+s3 == 0 {
		b.Error("nothing was read")
	}
}

func BenchmarkGemvF16(b *testing.B) {
	for _, s := range []struct {
		name    string
		rows, n int
	}{{"hot", 64, 4096}, {"hot", 256, 576}, {"cold", 262144, 576}, {"cold", 32768, 4096}} {
		x, w, dst := benchF32(s.n), benchF16(s.rows*s.n), make([]float32, s.rows)
		b.Run(fmt.Sprintf("%s/n=%d", s.name, s.n), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(int64(2 * s.n * s.rows))
				for b.Loop() {
					GemvF16(dst, x, w, s.n)
				}
			})
		})
	}
}

// benchRows is a resident buffer of records in slot order.
func benchRows(h, count int) (mem []uint16, off []int) {
	stride := (3*h*2 + 16 + 511) / 512 * 256
	mem = benchF16(stride * count)
	for i := range count {
		off = append(off, i*7919%count*stride)
	}
	return mem, off
}

func BenchmarkRows(b *testing.B) {
	for _, s := range []struct {
		name     string
		h, count int
	}{{"hot", 576, 128}, {"cold", 576, 75000}, {"cold", 4096, 5500}} {
		mem, off := benchRows(s.h, s.count)
		x, y, gate, up := benchF32(s.h), make([]float32, s.h), make([]float32, s.count), make([]float32, s.count)
		b.Run(fmt.Sprintf("GateUp/%s/h=%d", s.name, s.h), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(int64(4 * s.h * s.count))
				for b.Loop() {
					GateUpRows(gate, up, x, mem, off)
				}
			})
		})
		b.Run(fmt.Sprintf("Down/%s/h=%d", s.name, s.h), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(int64(2 * s.h * s.count))
				for b.Loop() {
					DownRows(y, up, mem, off, s.h, 0, s.h)
				}
			})
		})
		b.Run(fmt.Sprintf("DownHalf/%s/h=%d", s.name, s.h), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(int64(s.h * s.count))
				for b.Loop() {
					DownRows(y, up, mem, off, s.h, 0, s.h/2)
				}
			})
		})
	}
}

func BenchmarkAttention(b *testing.B) {
	for _, n := range []int{64, 128} {
		const tokens, heads = 2048, 8
		stride := n * heads
		kv, q, p := benchF16(tokens*stride), benchF32(n), benchF32(tokens)
		b.Run(fmt.Sprintf("Scores/n=%d", n), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(2 * tokens * int64(n))
				for b.Loop() {
					ScoresF16(p, q, kv, stride, 0.1)
				}
			})
		})
		b.Run(fmt.Sprintf("WeightedSum/n=%d", n), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(2 * tokens * int64(n))
				for b.Loop() {
					WeightedSumF16(q, p, kv, stride)
				}
			})
		})
	}
}

func BenchmarkVector(b *testing.B) {
	const n = 14336
	x, y, h := benchF32(n), benchF32(n), benchF16(n)
	counts, mask := make([]uint64, 32768), make([]uint64, n/64)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"DotF32", func() { DotF32(x, y) }},
		{"AxpyF32", func() { AxpyF32(y, 0, x) }},
		{"AxpyF16", func() { AxpyF16(y, 0, h) }},
		{"RMSNorm", func() { RMSNorm(y, x, x, 1e-5) }},
		{"RoPE", func() { RoPE(y, x[:n/2], x[n/2:]) }},
		{"Softmax", func() { Softmax(y) }},
		{"LogSumExp", func() { LogSumExp(x) }},
		{"SiLU", func() { SiLU(y, x) }},
		{"SiLUMul", func() { SiLUMul(y, x, x) }},
		{"MaxIndex", func() { MaxIndex(x) }},
		{"F16ToF32", func() { F16ToF32(y, h) }},
		{"F32ToF16", func() { F32ToF16(h, x) }},
		{"BF16ToF32", func() { BF16ToF32(y, h) }},
		{"CountMagnitudes", func() { CountMagnitudes(counts, x) }},
		{"MaskAtLeast", func() { MaskAtLeast(mask, x, 0.5) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					c.f()
				}
			})
		})
	}
}

func BenchmarkBits(b *testing.B) {
	for _, words := range []int{24, 224} { // masks of 1536 and 14336 bits
		const rows = 512
		q, table, dst := make([]uint64, words), make([]uint64, rows*words), make([]int32, rows)
		randWords(newRand(1), table, 0)
		b.Run(fmt.Sprintf("HammingRows/words=%d", words), func(b *testing.B) {
			perLevel(b, func(b *testing.B) {
				b.SetBytes(8 * rows * int64(words))
				for b.Loop() {
					HammingRows(dst, q, table)
				}
			})
		})
	}
	const words = 224
	x, y, d := make([]uint64, words), make([]uint64, words), make([]uint64, words)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"And", func() { And(d, x, y) }},
		{"Popcount", func() { Popcount(x) }},
		{"AndCount", func() { AndCount(x, y) }},
		{"Hamming", func() { Hamming(x, y) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(8 * words)
			b.ReportAllocs()
			for b.Loop() {
				c.f()
			}
		})
	}
}

func TestVectorsAllocateNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const n = 579 // with leftovers at every level
		x, y, z := benchF32(n), benchF32(n), benchF32(n)
		h, counts, mask := benchF16(3*n*7), make([]uint64, 32768), make([]uint64, (n+63)/64)
		off := []int{0, 3 * n, 6 * n, 9 * n, 12 * n}
		g, u, d := make([]float32, 5), make([]float32, 5), make([]int32, 3)
		q8 := NewQ8(576)
		got := testing.AllocsPerRun(10, func() {
			DotF16(x, h[:n])
			DotF32(x, y)
			AxpyF16(y, 1, h[:n])
			AxpyF32(y, 1, x)
			Add(y, x)
			GemvF16(g, x, h, n)
			q8.Set(x[:576])
			GemvQ4I8(g[:1], q8, U16Bytes(h)[:288], h[:18])
			GateUpRows(g, u, x, h, off)
			DownRows(y, g, h, off, n, 1, n)
			ScoresF16(g, x, h, n, 1)
			WeightedSumF16(y, g, h, n)
			RMSNorm(z, x, y, 1)
			RoPE(x[:n-1], y[:n/2], z[:n/2])
			Softmax(y)
			LogSumExp(y)
			SiLU(z, y)
			SiLUMul(z, y, x)
			MaxIndex(z)
			F16ToF32(x, h[:n])
			F32ToF16(h[:n], x)
			BF16ToF32(x, h[:n])
			CountMagnitudes(counts, x)
			MaskAtLeast(mask, x, 1)
			HammingRows(d, counts[:7], counts[:21])
			Hamming(counts, counts)
		})
		if got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
}
