package kernels

import "unsafe"

var gemmGeneric = gemmKernel{mr: 4, nr: 4, tile: gemmTileGeneric}

// gemmTileGeneric defines what a tile kernel does (gemmKernel.tile); it is 4 x 4. The assembly rounds once per step,
// this one as Go's float32 expressions do on the machine.
func gemmTileGeneric(kc int, a, b, c *float32, ldc int, add bool) {
	as, bs := unsafe.Slice(a, 4*kc), unsafe.Slice(b, 4*kc)
	var t [4][4]float32
	for k := 0; k < kc; k++ {
		x, y := as[4*k:][:4], bs[4*k:][:4]
		for i := range t {
			t[i][0] += x[i] * y[0]
			t[i][1] += x[i] * y[1]
			t[i][2] += x[i] * y[2]
			t[i][3] += x[i] * y[3]
		}
	}
	cs := unsafe.Slice(c, 3*ldc+4)
	for i := range t {
		for j, v := range t[i] {
			if add {
				cs[i*ldc+j] += v
			} else {
				cs[i*ldc+j] = v
			}
		}
	}
}
