package model

// SetInvFreq replaces the rotary frequencies, for goldens that were computed with rounded ones.
func (m *Model) SetInvFreq(f []float64) { m.invFreq = f }
