package enginetest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
)

// TestRig holds that a rig says what it is told to, in every mode.
func TestRig(t *testing.T) {
	r := &Rig{Tokens: []string{"al", "pha be", "ta"}}
	r.Chain(Byte('x'), FirstFree, FirstFree+1, FirstFree+2, EOS)
	dir := r.Bundle(t)
	for _, o := range Modes() {
		e, mode := Open(t, dir, o), o.Mode
		ids, _ := e.Tokenizer.EncodeCompletion("x")
		res, err := e.Generate(context.Background(), engine.Request{Prompt: ids, MaxTokens: 10}, nil)
		if err != nil || res.Text != "alpha beta" || res.Finish != engine.FinishStop {
			t.Errorf("%s: %+v, %v", mode, res, err)
		}
	}
}

// TestPrefillScored compares the scores of a prompt with those that Score and the logits of steps give, and the rivals
// with a full sort, in exact and in sparse mode.
func TestPrefillScored(t *testing.T) {
	dir := Tiny(t)
	ids := []int32{532, 885, 329, 470, 886, 884, 337, 515, 313, 280, 264, 225, 281, 71, 270}
	for _, o := range Modes() {
		e, ref, mode := Open(t, dir, o), Open(t, dir, o), o.Mode
		logits, got, err := e.PrefillScored(context.Background(), ids, 5, nil)
		if err != nil || len(got) != len(ids)-1 || e.Len() != len(ids) {
			t.Fatalf("%s: %d scores, %d tokens, %v", mode, len(got), e.Len(), err)
		}
		last := slices.Clone(logits)
		row, err := ref.Prefill(context.Background(), ids[:1])
		for i := 1; i < len(ids) && err == nil; i++ {
			sum := 0.0
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			s := got[i-1]
			if want := float64(row[ids[i]]) - math.Log(sum); math.Abs(s.LogProb-want) > 2e-3 {
				t.Errorf("%s: token %d: %v, want %v", mode, i, s.LogProb, want)
			}
			if len(s.Top) != 5 || !slices.IsSortedFunc(s.Top, func(a, b model.Ranked) int { return cmp.Compare(b.LogProb, a.LogProb) }) {
				t.Errorf("%s: token %d: top is %v", mode, i, s.Top)
			}
			best := slices.Max(row)
			if float64(row[s.Top[0].ID]) < float64(best)-1e-3 {
				t.Errorf("%s: token %d: the likeliest is %d", mode, i, s.Top[0].ID)
			}
			for _, r := range s.Top {
				if r.ID == ids[i] && r.LogProb != s.LogProb {
					t.Errorf("%s: token %d has two log-probabilities", mode, i)
				}
			}
			row, err = ref.Step(context.Background(), ids[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range row {
			if math.Abs(float64(row[i]-last[i])) > 2e-3 {
				t.Fatalf("%s: the last scores differ: %v and %v", mode, row[i], last[i])
			}
		}
	}
}
