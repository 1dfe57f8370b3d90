package eval

import (
	"context"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
)

// EngineScorer scores by an engine, which keeps what it computed of the beginning that a call shares with the one before.
//
// In resident and stream mode the rest runs through whole layers at once. In sparse mode the first token of a sequence
// does and every later one is a step of the token loop, as in LogProbs and in a server's answer to echo.
func EngineScorer(e *engine.Engine) Scorer {
	e.Reset()
	return func(ctx context.Context, ids []int32, from int) ([]float64, error) {
		if from < 1 || from >= len(ids) {
			return nil, format.Inputf("no token to score in %d from %d", len(ids), from)
		}
		kept := from - len(e.Resume(ids[:from]))
		var lp []float64
		if e.Plan.Mode != engine.ModeSparse {
			lp = make([]float64, len(ids)-1-kept)
			if err := e.Score(ctx, ids[kept:], lp); err != nil {
				return nil, err
			}
			lp = lp[from-1-kept:]
			return lp, finite(lp)
		}
		for i := kept; i < len(ids)-1; i++ {
			var logits []float32
			var err error
			if i == 0 {
				logits, err = e.Prefill(ctx, ids[:1])
			} else {
				logits, err = e.Step(ctx, ids[i])
			}
			if err != nil {
				return nil, err
			}
			if i+1 >= from {
				v, _ := model.Rank(logits, ids[i+1], 0, nil)
				lp = append(lp, v)
			}
		}
		return lp, finite(lp)
	}
}
