package capture

import (
	"math"

	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib/forward"
	"neuroprefetcher/runtime/predictor"
)

// maxHalf is float16's largest value: features beyond it are stored as it.
const maxHalf = 65504

// begin readies the sums' factors for layer l.
func (pt *part) begin(l int) error {
	_, rows, err := pt.walker.Load(l)
	if err != nil {
		return err
	}
	pt.layer = l
	pt.gateT, pt.upT = pt.meta.Thresholds.Value(l, 0), pt.meta.Thresholds.Value(l, 1)
	forward.DownNorms(pt.pool, pt.norms, rows, pt.meta.Hidden)
	return nil
}

// feature stores feature vector j of a window, rounded to float16.
func (pt *part) feature(j int) func(row int, x []float32) {
	return func(row int, x []float32) {
		h := pt.meta.Hidden
		dst := pt.feat[j][row*h : row*h+len(x)]
		kernels.F32ToF16(dst, x)
		for i, b := range dst {
			if b&0x7fff >= 0x7c00 {
				dst[i] = kernels.F16Bits(min(max(x[i], -maxHalf), maxHalf))
			}
		}
	}
}

// tap takes the masks and sums of neurons [lo, hi) for the t tokens of a window.
func (pt *part) tap(row, t, lo, hi int, gate, up []float32) {
	n, w := hi-lo, predictor.Words(pt.meta.Neurons)
	if len(pt.act) < t*n {
		pt.act, pt.sum = make([]float32, t*n), make([]float32, n)
	}
	from, words := lo/64, predictor.Words(n) // chunks begin at multiples of 64
	pt.pool.Run(t, 8, func(first, last int) {
		for i := first; i < last; i++ {
			a, u := pt.act[i*n:(i+1)*n], up[i*n:(i+1)*n]
			kernels.SiLU(a, gate[i*n:(i+1)*n])
			at := (row+i)*w + from
			kernels.MaskAtLeast(pt.masks[0][at:at+words], a, pt.gateT)
			kernels.MaskAtLeast(pt.masks[1][at:at+words], u, pt.upT)
			for j, v := range a {
				v *= u[j]
				a[j] = math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
			}
		}
	})
	base := pt.layer*pt.meta.Neurons + lo
	pt.pool.Run(n, 64, func(first, last int) {
		sum := pt.sum[first:last]
		clear(sum)
		for i := range t { // tokens ascending, so the sums do not depend on the threads
			kernels.Add(sum, pt.act[i*n+first:i*n+last])
		}
		for j, v := range sum {
			norm := float64(pt.norms[lo+first+j])
			pt.all[base+first+j] += float64(v) * norm
			pt.first[base+first+j] += float64(pt.act[first+j]) * norm
		}
	})
}
