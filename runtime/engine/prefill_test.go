package engine

import (
	"context"
	"testing"
)

// TestMicrobatchesAreEven holds that a prompt is cut into as few micro-batches as can be, of sizes that differ by one at
// most, and that the cut changes no bit.
func TestMicrobatchesAreEven(t *testing.T) {
	dir := buildBundle(t, 0)
	whole, e := openEngine(t, dir, Options{Mode: ModeResident}), openEngine(t, dir, Options{Mode: ModeStream, Dense: 2})
	const micro = 16
	e.Plan.Microbatch = micro
	ids := make([]int32, 100)
	for i := range ids {
		ids[i] = int32(i * 37 % 1000)
	}
	for _, n := range []int{1, 15, 16, 17, 33, 65, 100} {
		e.Reset()
		at, least, most, parts := 0, n, 0, 0
		err := e.prefill(context.Background(), ids[:n], func(from, t int, x []float32) {
			if from != at {
				parts = -1000
			}
			at += t
			least, most = min(least, t), max(most, t)
			parts++
		})
		if err != nil {
			t.Fatal(err)
		}
		if at != n || parts != (n+micro-1)/micro || most > micro || most-least > 1 {
			t.Errorf("%d tokens: %d micro-batches of %d to %d tokens, %d in all", n, parts, least, most, at)
		}
		whole.Reset()
		want, err := whole.Prefill(context.Background(), ids[:n])
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "micro-batches", e.logits, want)
	}
}
