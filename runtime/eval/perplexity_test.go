package eval_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine/enginetest"
	"neuroprefetcher/runtime/eval"
)

// text is n tokens of a rig's alphabet.
func text(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(enginetest.FirstByte + i*37%256)
	}
	return ids
}

// TestUniform holds that a model that knows nothing has its vocabulary size as perplexity, whatever the window, and that
// as many tokens are scored as the protocol says: N − ⌈N/W⌉ without a BOS, N with one in each window.
func TestUniform(t *testing.T) {
	dir := (&enginetest.Rig{Rows: 323}).Bundle(t) // nothing follows anything: the head is zero
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		for _, w := range []int{2, 3, 16, 17} {
			for _, n := range []int{w - 1, w, w + 1, 2 * w, 5*w + 1} {
				for _, bos := range []bool{false, true} {
					what := fmt.Sprintf("%s, window %d, %d tokens, BOS %v", o.Mode, w, n, bos)
					want := n
					if !bos {
						want = n - (n+w-1)/w
					}
					p, err := eval.Run(context.Background(), e, text(n), eval.Protocol{Window: w, BOS: bos}, nil)
					if want == 0 {
						if !errors.Is(err, format.ErrInput) {
							t.Errorf("%s: %v, %v", what, p, err)
						}
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					if p.Scored != want || p.Tokens != n || math.Abs(p.Perplexity-323) > 1e-9*323 {
						t.Errorf("%s: %d of %d scored, perplexity %v", what, p.Scored, p.Tokens, p.Perplexity)
					}
				}
			}
		}
	}
}

// TestWindows holds the whole against its windows: stopping early gives the same first windows, and the sums add up.
func TestWindows(t *testing.T) {
	dir := enginetest.Tiny(t)
	ids := []int32{532, 885, 329, 470, 886, 884, 337, 515, 313, 280, 264, 225, 281, 71, 270, 86, 72, 18, 561, 225, 426, 691}
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		run := func(p eval.Protocol) *eval.Perplexity {
			r, err := eval.Run(context.Background(), e, ids, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		all, two := run(eval.Protocol{Window: 8}), run(eval.Protocol{Window: 8, MaxWindows: 2})
		if two.Windows != 2 || two.PerWindow[0] != all.PerWindow[0] || two.PerWindow[1] != all.PerWindow[1] {
			t.Errorf("%s: %v, then %v", o.Mode, all.PerWindow, two.PerWindow)
		}
		sum := 0.0
		for i := range all.PerWindow {
			lp, err := eval.LogProbs(context.Background(), e, ids[i*8:min(i*8+8, len(ids))])
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range lp[1:] {
				sum -= v
			}
		}
		if math.Abs(sum-all.NLL) > 1e-9*sum || math.Abs(all.Perplexity-math.Exp(sum/float64(all.Scored))) > 1e-9*all.Perplexity {
			t.Errorf("%s: %v in all, %v of its windows, perplexity %v", o.Mode, all.NLL, sum, all.Perplexity)
		}
	}
}

// TestNotFinite holds that scores which are not numbers are an error in every mode, and the next run is not hurt by it.
func TestNotFinite(t *testing.T) {
	bad := enginetest.FirstByte + 9
	dir := (&enginetest.Rig{NaN: []int{bad}}).Bundle(t)
	for _, o := range enginetest.Modes() {
		e := enginetest.Open(t, dir, o)
		if lp, err := eval.LogProbs(context.Background(), e, []int32{5, 6, int32(bad), 7}); err == nil {
			t.Errorf("%s: %v", o.Mode, lp)
		}
		if lp, err := eval.LogProbs(context.Background(), e, []int32{5, 6, 7, 8}); err != nil || len(lp) != 4 {
			t.Errorf("%s: %v, %v", o.Mode, lp, err)
		}
	}
}
