package predictor

import "math"

// Round8 is v with every group of 32 numbers rounded to 8 bits, as a vector is before it meets 4-bit rows.
func Round8(v []float64) []float64 {
	out := make([]float64, len(v))
	for at := 0; at < len(v); at += 32 {
		group := v[at:min(at+32, len(v))]
		most := 0.0
		for _, x := range group {
			most = max(most, math.Abs(x))
		}
		if most == 0 {
			continue
		}
		for i, x := range group {
			out[at+i] = math.RoundToEven(x/most*127) * most / 127
		}
	}
	return out
}
