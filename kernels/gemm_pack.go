package kernels

import "unsafe"

// vectors is a matrix as the packing sees it: A's rows or B's columns, both running along the inner dimension.
// Element k of vector v is at v*stride + k*step.
type vectors struct {
	f32          []float32
	f16          []uint16
	stride, step int
}

// at is the address of the element at index p.
func (v *vectors) at(p int) unsafe.Pointer {
	if v.f16 != nil {
		return unsafe.Pointer(&v.f16[p])
	}
	return unsafe.Pointer(&v.f32[p])
}

// zeros stands in for vectors beyond the edge; it serves as float32 and as float16.
var zeros [GemmKC]float32

// pack writes n vectors from v0 on, elements k0..k0+kc-1, as panels of width lanes, the last one completed with zeros:
// vector v0+i, element k0+k goes to dst[i/width*width*kc + k*width + i%width]. It may spoil packSlack elements after
// the last panel.
func (g *gemmKernel) pack(s *gemmScratch, dst []float32, v *vectors, v0, n, width, k0, kc int) {
	done := 0
	first := v0*v.stride + k0*v.step
	if v.stride == 1 && g.copyF32 != nil {
		groups := ceilDiv(width, 8)
		panels := n / width
		// Whole groups are read: the last panel only if that stays inside.
		last := first + (kc-1)*v.step
		if panels > 0 && last+(panels-1)*width+8*groups > len(v.f32)+len(v.f16) {
			panels--
		}
		// A panel whose last group sticks out spoils the next one: then they have to be written in turn.
		together := panels
		if width%8 != 0 {
			together = 1
		}
		for ; done < panels*width; done += together * width {
			if v.f16 != nil {
				g.copyF16(&dst[done*kc], width*kc, v.at(first+done), v.step, together, groups, width, kc)
			} else {
				g.copyF32(&dst[done*kc], width*kc, v.at(first+done), v.step, together, groups, width, kc)
			}
		}
	}
	for ; done < n; done += width {
		g.packPanel(s, dst[done*kc:], v, first+done*v.stride, min(width, n-done), width, kc)
	}
}

// packPanel packs one panel of n vectors; the first one's first element is at index first.
func (g *gemmKernel) packPanel(s *gemmScratch, dst []float32, v *vectors, first, n, width, kc int) {
	k8 := 0
	if v.step == 1 && g.transF32 != nil {
		k8 = kc &^ 7
		// Lanes in eights, the last eight first: they may stick out into the next step's first lanes.
		for r0 := (width - 1) &^ 7; r0 >= 0; r0 -= 8 {
			for r := range s.rows {
				if r0+r < n {
					s.rows[r] = v.at(first + (r0+r)*v.stride)
				} else {
					s.rows[r] = unsafe.Pointer(&zeros)
				}
			}
			if v.f16 != nil {
				g.transF16(&dst[r0], width, &s.rows, k8, 2*width*v.stride)
			} else {
				g.transF32(&dst[r0], width, &s.rows, k8, 4*width*v.stride)
			}
		}
	}
	packGeneric(dst, v, first, n, width, k8, kc)
}

// packGeneric packs steps from..to-1 of a panel.
func packGeneric(dst []float32, v *vectors, first, n, width, from, to int) {
	for k := from; k < to; k++ {
		d := dst[k*width:][:width]
		p := first + k*v.step
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
