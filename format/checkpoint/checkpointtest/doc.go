// Package checkpointtest writes small seeded checkpoints for tests: the model called TINY and every way of bending it.
//
//	dir := checkpointtest.Dir(t, func(m *checkpointtest.Model) { m.Shards = 2; m.Config["sliding_window"] = 16 })
//
// Its encoders are its own, so that a reader under test is not checked by the writer beside it. It is for tests only and
// imports nothing of this module. Start at Dir and Model.
package checkpointtest
