package gguf

// The "K" formats: super-blocks of 256 values, split in groups that have their own small integer scales under one or two float16 scales.

// scaleMin unpacks group j of 8 from the 12 bytes of 6-bit scales and minima: groups 0–3 sit in the low six bits of bytes 0–3 (scales) and 4–7 (minima);
// groups 4–7 take their low four bits from bytes 8–11 and their high two from the top of bytes 0–7.
func scaleMin(s []byte, j int) (scale, minimum byte) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

// Q4_K: scale f16, scale of minima f16, 12 bytes of group scales, 128 bytes of nibbles: each 32 bytes hold two groups of 32, low nibbles first.
func decodeQ4K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		d, dm, s, q := half(src), half(src[2:]), src[4:16], src[16:144]
		for j := 0; j < 8; j += 2 {
			sc, mn := scaleMin(s, j)
			d1, m1 := d*float32(sc), dm*float32(mn)
			sc, mn = scaleMin(s, j+1)
			d2, m2 := d*float32(sc), dm*float32(mn)
			x, b := dst[j*32:j*32+64], q[j*16:j*16+32]
			for i := range b {
				x[i] = float32(d1*float32(b[i]&15)) - m1
				x[i+32] = float32(d2*float32(b[i]>>4)) - m2
			}
		}
		dst, src = dst[256:], src[144:]
	}
}

// Q5_K: as Q4_K with 32 bytes of fifth bits between: bit j of byte i belongs to value i of group j.
func decodeQ5K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		d, dm, s, h, q := half(src), half(src[2:]), src[4:16], src[16:48], src[48:176]
		for j := 0; j < 8; j += 2 {
			sc, mn := scaleMin(s, j)
			d1, m1 := d*float32(sc), dm*float32(mn)
			sc, mn = scaleMin(s, j+1)
			d2, m2 := d*float32(sc), dm*float32(mn)
			x, b := dst[j*32:j*32+64], q[j*16:j*16+32]
			for i := range b {
				x[i] = float32(d1*float32(b[i]&15|h[i]>>j&1<<4)) - m1
				x[i+32] = float32(d2*float32(b[i]>>4|h[i]>>(j+1)&1<<4)) - m2
			}
		}
		dst, src = dst[256:], src[176:]
	}
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed group scales (groups of 16), scale f16; offset 32.
// Each half of 128 values uses 64 bytes of nibbles and 32 of pairs: value quarters 0 and 1 are the low nibbles, 2 and 3 the high ones.
func decodeQ6K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		d := half(src[208:])
		for n := range 2 {
			l, h, s, x := src[n*64:n*64+64], src[128+n*32:128+n*32+32], src[192+n*8:192+n*8+8], dst[n*128:n*128+128]
			for i := range 32 {
				g := i / 16
				x[i] = d * float32(int8(s[g])) * float32(int(l[i]&15|h[i]&3<<4)-32)
				x[i+32] = d * float32(int8(s[g+2])) * float32(int(l[i+32]&15|h[i]>>2&3<<4)-32)
				x[i+64] = d * float32(int8(s[g+4])) * float32(int(l[i]>>4|h[i]>>4&3<<4)-32)
				x[i+96] = d * float32(int8(s[g+6])) * float32(int(l[i+32]>>4|h[i]>>6<<4)-32)
			}
		}
		dst, src = dst[256:], src[210:]
	}
}
