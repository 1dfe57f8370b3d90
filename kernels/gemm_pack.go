package kernels

import "unsafe"

// vectors is a matrix as the packing sees it: A's rows or B's columns, both running along the inner dimension.
// Element k of vector v is at v*stride + k*step.
type vectors struct {
	f32          []float32
	f16          []uint16
	stride, step int
}

// zeros stands in for vectors beyond the edge; it serves as float32 and as float16.
var zeros [GemmKC]float32

// pack writes n vectors from v0 on, elements k0..k0+kc-1, as one panel: dst[k*width+r]; lanes n..width-1 are zero. It
// may spoil packSlack elements after the panel.
func (g *gemmKernel) pack(s *gemmScratch, dst []float32, v *vectors, v0, n, width, k0, kc int) {
	at := v0*v.stride + k0*v.step
	groups := ceilDiv(width, 8)
	switch {
	case v.step == 1 && g.transF32 != nil:
		// Lanes in eights, the last eight first: it may stick out into the next step's first lanes.
		k8 := kc &^ 7
		for r0 := 8 * (groups - 1); r0 >= 0; r0 -= 8 {
			for r := range s.rows {
				switch {
				case r0+r >= n:
					s.rows[r] = unsafe.Pointer(&zeros)
				case v.f16 != nil:
					s.rows[r] = unsafe.Pointer(&v.f16[at+(r0+r)*v.stride])
				default:
					s.rows[r] = unsafe.Pointer(&v.f32[at+(r0+r)*v.stride])
				}
			}
			if v.f16 != nil {
				g.transF16(&dst[r0], width, &s.rows, k8)
			} else {
				g.transF32(&dst[r0], width, &s.rows, k8)
			}
		}
		packGeneric(dst, v, at, n, width, k8, kc)
	case v.stride == 1 && n == width && g.copyF32 != nil && at+(kc-1)*v.step+8*groups <= len(v.f32)+len(v.f16):
		if v.f16 != nil {
			g.copyF16(&dst[0], width, unsafe.Pointer(&v.f16[at]), v.step, groups, kc)
		} else {
			g.copyF32(&dst[0], width, unsafe.Pointer(&v.f32[at]), v.step, groups, kc)
		}
	default:
		packGeneric(dst, v, at, n, width, 0, kc)
	}
}

// packGeneric packs steps k from..to-1 of n vectors; the first vector's step 0 is at index at.
func packGeneric(dst []float32, v *vectors, at, n, width, from, to int) {
	for k := from; k < to; k++ {
		d := dst[k*width:][:width]
		p := at + k*v.step
		if v.f16 != nil {
			for r := range n {
				d[r] = F16Value(v.f16[p])
				p += v.stride
			}
		} else {
			for r := range n {
				d[r] = v.f32[p]
				p += v.stride
			}
		}
		clear(d[n:])
	}
}
