// Package lookaheadtest writes lookahead.safetensors with random factors for tests. Start at Write.
package lookaheadtest

import (
	"fmt"
	"io"
	"math/rand/v2"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// Projection is what a file says about one projection of a layer, unpacked.
type Projection struct {
	In, Out     [][]float64 // (r, H), (M, r)
	Offset, Dev []float64
}

// Layer is what a file says about a layer.
type Layer struct {
	Source int
	Scale  []float64
	Down   []float64
	Proj   [2]Projection
}

// Write writes a file of random factors with the given rank for gate and three less for up, and returns its content.
func Write(path string, cfg *checkpoint.Config, lag, rank int, seed uint64) ([]Layer, error) {
	r := rand.New(rand.NewPCG(seed, 7))
	h, m := cfg.Hidden, cfg.Intermediate
	layers := make([]Layer, cfg.Layers)
	source := make([]int32, cfg.Layers)
	source[0] = -1
	var entries []tensors.Entry
	half := func(name string, n int, next func() float64) (v []float64) {
		bits := make([]uint16, n)
		for i := range bits {
			bits[i] = kernels.F16Bits(float32(next()))
			v = append(v, float64(kernels.F16Value(bits[i])))
		}
		entries = append(entries, tensors.F16Entry(name, []int{n}, bits))
		return v
	}
	factor := func(name string, rows, cols int) (v [][]float64) {
		pad := (cols + 31) / 32 * 32
		packed, scales := make([]byte, rows*pad/2), make([]uint16, rows*pad/32)
		for i := range scales {
			scales[i] = kernels.F16Bits(float32(0.02 + 0.05*r.Float64()))
		}
		for i := range rows {
			codes, row := make([]int8, pad), make([]float64, cols)
			for j := range row {
				codes[j] = int8(r.IntN(15) - 7)
				row[j] = float64(codes[j]) * float64(kernels.F16Value(scales[(i*pad+j)/32]))
			}
			kernels.PackQ4(packed[i*pad/2:(i+1)*pad/2], codes)
			v = append(v, row)
		}
		entries = append(entries, tensors.Entry{Name: name, DType: "U8", Shape: []int{rows, pad / 2}, Write: func(w io.Writer) error {
			_, err := w.Write(packed)
			return err
		}}, tensors.F16Entry(predictor.FactorScales(name), []int{rows, pad / 32}, scales))
		return v
	}
	for l := 1; l < cfg.Layers; l++ {
		x := &layers[l]
		x.Source = predictor.Source(l, lag)
		source[l] = int32(x.Source)
		scale := make([]float32, h)
		for i := range scale {
			scale[i] = 0.5 + r.Float32()
			x.Scale = append(x.Scale, float64(scale[i]))
		}
		entries = append(entries, tensors.F32Entry(predictor.ScaleName(l), []int{h}, scale))
		for p := range predictor.Projections {
			n := rank - 3*p
			x.Proj[p] = Projection{
				In: factor(predictor.InName(p, l), n, h), Out: factor(predictor.OutName(p, l), m, n),
				Offset: half(predictor.OffsetName(p, l), m, r.NormFloat64), Dev: half(predictor.DevName(p, l), m, r.Float64),
			}
		}
		x.Down = half(predictor.DownName(l), m, func() float64 { return 0.1 + r.Float64() })
	}
	entries = append(entries, tensors.I32Entry(predictor.SourceName, []int{cfg.Layers}, source))
	if err := tensors.Write(path, entries, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return layers, nil
}
