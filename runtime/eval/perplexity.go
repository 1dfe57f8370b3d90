package eval

import (
	"context"
	"fmt"
	"math"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
)

// LogProbs returns the log-probability of every token of ids given those before it; the first has none and is NaN.
func LogProbs(ctx context.Context, e *engine.Engine, ids []int32) ([]float64, error) {
	e.Reset()
	lp := make([]float64, len(ids))
	if len(ids) == 0 {
		return lp, nil
	}
	lp[0] = math.NaN()
	if e.Plan.Mode != engine.ModeSparse {
		if err := e.Score(ctx, ids, lp[1:]); err != nil {
			return nil, err
		}
		return lp, finite(lp[1:])
	}
	logits, err := e.Prefill(ctx, ids[:1])
	for i := 1; i < len(ids) && err == nil; i++ {
		lp[i], _ = model.Rank(logits, ids[i], 0, nil)
		if i+1 < len(ids) {
			logits, err = e.Step(ctx, ids[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return lp, finite(lp[1:])
}

// finite refuses log-probabilities that no sum can be made of; the first belongs to token 1.
func finite(lp []float64) error {
	for i, v := range lp {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("token %d: the model's scores are not finite", i+1)
		}
	}
	return nil
}

// Protocol says how a text is cut and what is scored.
type Protocol struct {
	Window     int  // tokens of a window, a BOS included
	MaxWindows int  // 0 is all
	BOS        bool // every window begins with the BOS, and so every token of the text is scored
}

// Perplexity is the result over all windows.
type Perplexity struct {
	Tokens     int       `json:"tokens"` // of the whole text
	Window     int       `json:"window"`
	Windows    int       `json:"windows"`
	BOS        bool      `json:"bos"`
	Scored     int       `json:"scored_tokens"`
	NLL        float64   `json:"nll"` // sum, in nats
	Perplexity float64   `json:"perplexity"`
	StdErr     float64   `json:"standard_error"` // of the perplexity, from the spread of the windows
	PerWindow  []float64 `json:"nll_per_window"`

	scored []int // tokens of each window
}

// String describes the protocol and the result in one line.
func (p *Perplexity) String() string {
	bos := "no BOS"
	if p.BOS {
		bos = "BOS in each window"
	}
	return fmt.Sprintf("perplexity %.4f ± %.4f (%d windows of %d tokens without overlap, %s, per token, %d of %d tokens scored)",
		p.Perplexity, p.StdErr, p.Windows, p.Window, bos, p.Scored, p.Tokens)
}

// Run cuts ids into windows without overlap, the last one as long as it comes, and scores every token that has another
// before it in its window. progress, if any, is called after each window.
func Run(ctx context.Context, e *engine.Engine, ids []int32, p Protocol, progress func(done, total int)) (*Perplexity, error) {
	if p.Window < 2 || p.Window > e.Context() {
		return nil, format.Inputf("--window %d: want 2 to the context of %d tokens", p.Window, e.Context())
	}
	step := p.Window
	var bos []int32
	if p.BOS {
		if e.Config.BOS < 0 {
			return nil, format.Inputf("--bos: the model has no BOS token")
		}
		bos, step = []int32{int32(e.Config.BOS)}, p.Window-1
	}
	if len(ids)+len(bos) < 2 {
		return nil, format.Inputf("the text has %d tokens; at least 2 are needed", len(ids))
	}
	r := &Perplexity{Tokens: len(ids), Window: p.Window, BOS: p.BOS}
	total := (len(ids) + step - 1) / step
	if p.MaxWindows > 0 {
		total = min(total, p.MaxWindows)
	}
	for i := range total {
		w := append(bos[:len(bos):len(bos)], ids[i*step:min((i+1)*step, len(ids))]...)
		lp, err := LogProbs(ctx, e, w)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		sum := 0.0
		for _, v := range lp[1:] {
			sum -= v
		}
		r.NLL += sum
		r.Scored += len(w) - 1
		r.PerWindow, r.scored = append(r.PerWindow, sum), append(r.scored, len(w)-1)
		r.Windows++
		if progress != nil {
			progress(i+1, total)
		}
	}
	if r.Scored == 0 {
		return nil, format.Inputf("no token of the text is scored")
	}
	r.Perplexity, r.StdErr = ExpMean(r.PerWindow, r.scored)
	return r, nil
}

// Ratio is r's perplexity ÷ that of exact on the same windows, and its standard error.
func (r *Perplexity) Ratio(exact *Perplexity) (ratio, stderr float64) {
	d := make([]float64, len(r.PerWindow))
	for i, v := range r.PerWindow {
		d[i] = v - exact.PerWindow[i]
	}
	return ExpMean(d, r.scored)
}

// ExpMean is exp(Σ sums ÷ Σ n), and its standard error with the windows as samples (of the ratio of both sums), 0 for a single
// one.
func ExpMean(sums []float64, n []int) (value, stderr float64) {
	sum, total := 0.0, 0
	for i := range sums {
		sum += sums[i]
		total += n[i]
	}
	m := sum / float64(total)
	value = math.Exp(m)
	if len(sums) < 2 {
		return value, 0
	}
	v := 0.0
	for i := range sums {
		d := sums[i] - m*float64(n[i])
		v += d * d
	}
	v *= float64(len(sums)) / float64(len(sums)-1)
	return value, value * math.Sqrt(v) / float64(total)
}
