package synthetic

import (
	"math"
	"math/bits"
)

// source is a wyrand generator: one multiplication per 64 bits, good enough for weights that mean nothing.
type source uint64

// newSource mixes seed and stream, so that neighbouring streams have nothing in common.
func newSource(seed, stream uint64) source {
	x := seed*0x9e3779b97f4a7c15 + stream*0xd1342543de82ef95 + 0x2545f4914f6cdd1d
	for range 2 {
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return source(x)
}

func (s *source) next() uint64 {
	*s += 0xa0761d6478bd642f
	hi, lo := bits.Mul64(uint64(*s), uint64(*s)^0xe7037ed1a0b428db)
	return hi ^ lo
}

// below returns a number in [0, n), n > 0.
func (s *source) below(n int) int {
	hi, _ := bits.Mul64(s.next(), uint64(n))
	return int(hi)
}

// unit returns a number in [0, 1).
func (s *source) unit() float64 { return float64(s.next()>>11) / (1 << 53) }

// halfExponent returns the float16 exponent field for values of about this root mean square: sign and mantissa random,
// the exponent fixed, which is uniform over ±[2^e, 2^(e+1)) with root mean square √(7/3)·2^e.
func halfExponent(rms float64) uint64 {
	e := int(math.Round(math.Log2(rms/math.Sqrt(7.0/3)))) + 15
	return uint64(min(max(e, 1), 29))
}

// halves fills dst, four float16 values a word, with random values of about this root mean square. They are finite.
func (s *source) halves(dst []uint64, rms float64) {
	e := halfExponent(rms) << 10
	e |= e<<16 | e<<32 | e<<48
	for i := range dst {
		dst[i] = s.next()&0x83ff83ff83ff83ff | e
	}
}

// mask fills n bits, each set with probability p to within 1/4096; bits beyond n are zero.
func (s *source) mask(dst []uint64, n int, p float64) {
	const digits = 12
	q := int(math.Round(p * (1 << digits)))
	for w := range dst {
		var x uint64
		if q >= 1<<digits {
			x = ^uint64(0)
		}
		for d := range digits { // binary digits of p from the lowest: 1 adds half of what is missing, 0 halves
			r := s.next()
			if q>>d&1 == 1 {
				x |= r
			} else {
				x &= r
			}
		}
		if q >= 1<<digits {
			x = ^uint64(0)
		}
		dst[w] = x
	}
	if n%64 != 0 {
		dst[len(dst)-1] &= 1<<(n%64) - 1
	}
}
