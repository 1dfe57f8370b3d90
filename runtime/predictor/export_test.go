package predictor

// LogEnergy is for the tests from outside.
func LogEnergy(v float32) float32 { return logEnergy(v) }
