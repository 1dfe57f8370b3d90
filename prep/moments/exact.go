package moments

import (
	"math"
	"math/bits"
)

// A grid is a step, a power of two, to whose multiples the sums of every block are rounded before they are added up in
// float64. It is so coarse that a sum over all tokens is exact, whatever the order: |x_s·x_t| summed over tokens is at
// most tokens × H, as every x has a mean square of at most 1. So parts and shards add up to the same bits however the
// text is cut; and so fine that what float32 rounds in a block's product is more: 2⁻²² for 196,608 tokens of H = 4,096.
type grid struct{ fine, step float64 } // fine·step = 1

func gridFor(tokens, hidden int) grid {
	top := bits.Len64(uint64(tokens)*uint64(hidden)) + 1 // with room for what float32 rounds up
	return grid{math.Ldexp(1, 53-top), math.Ldexp(1, top-53)}
}

func (g grid) round(v float64) float64 { return math.RoundToEven(v*g.fine) * g.step }
