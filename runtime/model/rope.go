package model

import (
	"math"

	"neuroprefetcher/kernels"
)

// angles writes cos and sin of every rotary pair of position pos, (head_dim/2) each.
func (m *Model) angles(cos, sin []float32, pos int) {
	for i, f := range m.invFreq {
		s, c := math.Sincos(float64(pos) * f)
		cos[i], sin[i] = float32(c), float32(s)
	}
}

// rotate applies the rotary embedding to every head of one token's vector.
func (m *Model) rotate(x, cos, sin []float32) {
	d := m.Config.HeadDim
	for h := 0; h+d <= len(x); h += d {
		kernels.RoPE(x[h:h+d], cos, sin)
	}
}
