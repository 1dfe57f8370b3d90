package eval_test

import (
	"context"
	"math"
	"testing"

	"neuroprefetcher/runtime/engine/enginetest"
	"neuroprefetcher/runtime/eval"
)

// TestEngineScorer holds scores behind kept beginnings against those of whole sequences, in every mode, for sequences that
// share long, short and no beginnings, and for one that begins with all of another.
func TestEngineScorer(t *testing.T) {
	dir := enginetest.Tiny(t)
	base := []int32{532, 885, 329, 470, 886, 884, 337, 515, 313, 280}
	seqs := [][]int32{
		append(base[:8:8], 264, 225, 281), append(base[:8:8], 71, 270), append(base[:3:3], 86, 72, 18), {561, 225, 426}, append(base[:8:8], 264, 225, 281), append(base[:8:8], 264, 225, 281, 5, 6),
	}
	from := []int{8, 8, 3, 1, 8, 11}
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		var want [][]float64
		for i, s := range seqs {
			lp, err := eval.LogProbs(context.Background(), e, s)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, lp[from[i]:])
		}
		score := eval.EngineScorer(e)
		for i, s := range seqs {
			got, err := score(context.Background(), s, from[i])
			if err != nil || len(got) != len(want[i]) {
				t.Fatalf("%s, %d: %v, %v", o.Mode, i, got, err)
			}
			for k := range got {
				if math.Abs(got[k]-want[i][k]) > 1e-9 {
					t.Errorf("%s, sequence %d, token %d: %v, want %v", o.Mode, i, k, got[k], want[i][k])
				}
			}
		}
		for _, bad := range []int{0, len(base), len(base) + 1} {
			if _, err := score(context.Background(), base, bad); err == nil {
				t.Errorf("%s: from %d was taken", o.Mode, bad)
			}
		}
	}
}
