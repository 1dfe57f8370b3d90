package lowrank

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestQuantise holds the error of a code against half a step of the group's peak, and constants.
func TestQuantise(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	const rows, cols = 5, 70
	x := make([]float64, rows*cols)
	for i := range x {
		x[i] = r.NormFloat64() * math.Exp(3*r.NormFloat64())
	}
	for i := range cols {
		x[2*cols+i] = 0
	}
	q := Encode(x, rows, cols)
	if len(q.codes) != rows*96 || len(q.scales) != rows*3 {
		t.Fatalf("%d codes, %d scales", len(q.codes), len(q.scales))
	}
	v := q.Values()
	for row := range rows {
		for lo := 0; lo < cols; lo += group {
			peak, miss, plain := 0.0, 0.0, 0.0
			for i := row*cols + lo; i < row*cols+min(lo+group, cols); i++ {
				peak = max(peak, math.Abs(x[i]))
			}
			for i := row*cols + lo; i < row*cols+min(lo+group, cols); i++ {
				miss += (x[i] - v[i]) * (x[i] - v[i])
				d := math.Remainder(x[i], peak/top)
				if peak > 0 {
					plain += d * d
				}
			}
			if miss > plain*1.01+1e-12 {
				t.Errorf("row %d group %d: squared error %v, plain rounding has %v", row, lo, miss, plain)
			}
		}
	}
	for r := range rows {
		for _, c := range q.codes[r*96+cols : (r+1)*96] {
			if c != 0 {
				t.Fatal("padding has codes")
			}
		}
	}
}
