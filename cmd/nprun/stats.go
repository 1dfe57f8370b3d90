package main

import (
	"fmt"
	"io"
	"time"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/runtime/engine"
)

// runStats is what a run reports, as text and as JSON. Times are in seconds.
type runStats struct {
	Bundle       string `json:"bundle"`
	Mode         string `json:"mode"`
	Selector     string `json:"selector,omitempty"`
	Dense        int    `json:"d"`
	Rows         int    `json:"resident_rows,omitempty"` // of every later layer, in stream mode
	held         string
	KMax         int     `json:"k_max"`
	Context      int     `json:"context"`
	IO           string  `json:"io_backend"`
	Direct       bool    `json:"direct_io"`
	QueueDepth   int     `json:"queue_depth"`
	Gap          int     `json:"gap"`              // bytes between rows that are read through
	Registered   bool    `json:"slots_registered"` // rows land in memory that the ring knows
	Budget       int64   `json:"memory_budget_bytes"`
	PeakRSS      int64   `json:"peak_rss_bytes"`
	ModelBytes   int64   `json:"model_bytes"`
	LoadTime     float64 `json:"load_s"`
	Prompt       int     `json:"prompt_tokens"`
	PromptTime   float64 `json:"prompt_s"`
	PromptRead   int64   `json:"prompt_read_bytes"`
	Tokens       int     `json:"tokens"`
	TokPerS      float64 `json:"tok_per_s"`
	Breakdown    times   `json:"breakdown_s"`
	ReadBytes    int64   `json:"read_bytes"`
	ReadPerToken float64 `json:"read_bytes_per_token"`
	ReadsPerTok  float64 `json:"reads_per_token"`
	MeanRead     float64 `json:"mean_read_bytes"`
	RowsNeeded   int64   `json:"rows_needed"`
	RowsRead     int64   `json:"rows_read"`
	Reuse        float64 `json:"reuse"`
}

// times adds up to the time of the generated tokens.
type times struct {
	IOWait  float64 `json:"io_wait"`
	Compute float64 `json:"compute"`
	Predict float64 `json:"predict"`
	Other   float64 `json:"other"`
}

func collect(e *engine.Engine, bundle string) runStats {
	s, io, p := e.Stats(), e.IO(), e.Plan
	_, peak := engine.RSS()
	r := runStats{Bundle: bundle, Mode: p.Mode, Selector: e.SelectorName(), Dense: p.Dense, Rows: p.Rows, held: p.Held(e.Config.Layers, e.Bundle.Manifest.Rows.Neurons), KMax: p.KMax, Context: p.Context,
		IO: io.Backend, Direct: io.Direct, QueueDepth: io.QueueDepth, Gap: io.Gap, Registered: io.InPlaceRegistered, Budget: p.Budget, PeakRSS: peak, ModelBytes: p.Weights,
		LoadTime: e.LoadTime.Seconds(), Prompt: s.Prompt, PromptTime: s.PrefillTime.Seconds(), PromptRead: s.PrefillIO.Bytes,
		Tokens: s.Tokens, Breakdown: times{s.IOWait.Seconds(), s.Compute.Seconds(), s.Predict.Seconds(), s.Other().Seconds()},
		ReadBytes: s.StepIO.Bytes, RowsNeeded: s.Needed, RowsRead: s.Read, Reuse: s.Reuse()}
	if s.Tokens > 0 && s.Total > 0 {
		n := float64(s.Tokens)
		r.TokPerS, r.ReadPerToken, r.ReadsPerTok = n/s.Total.Seconds(), float64(s.StepIO.Bytes)/n, float64(s.StepIO.Reads)/n
	}
	if s.StepIO.Reads > 0 {
		r.MeanRead = float64(s.StepIO.Bytes) / float64(s.StepIO.Reads)
	}
	return r
}

// print writes the statistics for people.
func (r runStats) print(w io.Writer) {
	direct := "through the page cache"
	if r.Direct {
		direct = "O_DIRECT"
	}
	mode := fmt.Sprintf("%s, %s in memory", r.Mode, r.held)
	if r.Mode == engine.ModeSparse {
		mode = fmt.Sprintf("sparse, dense prefix d = %d, then K_max = %d neurons per layer, selector %s", r.Dense, r.KMax, r.Selector)
	}
	fmt.Fprintf(w, "bundle   %s, %s of weights\n", r.Bundle, clix.FormatSize(r.ModelBytes))
	fmt.Fprintf(w, "mode     %s\n", mode)
	fmt.Fprintf(w, "memory   peak %s of a budget of %s\n", clix.FormatSize(r.PeakRSS), clix.FormatSize(r.Budget))
	fmt.Fprintf(w, "reading  %s, %s, at most %d in flight\n", r.IO, direct, r.QueueDepth)
	if r.Prompt > 0 {
		fmt.Fprintf(w, "prompt   %d tokens in %s (%.1f tok/s), %s read\n", r.Prompt, seconds(r.PromptTime), float64(r.Prompt)/r.PromptTime, clix.FormatSize(r.PromptRead))
	}
	if r.Tokens > 0 {
		t := r.Breakdown
		all := t.IOWait + t.Compute + t.Predict + t.Other
		fmt.Fprintf(w, "tokens   %d at %.2f tok/s: compute %.0f%%, waiting for rows %.0f%%, predicting %.0f%%\n", r.Tokens, r.TokPerS, 100*t.Compute/all, 100*t.IOWait/all, 100*t.Predict/all)
		fmt.Fprintf(w, "read     %s in all, %s and %.1f reads per token", clix.FormatSize(r.ReadBytes), clix.FormatSize(int64(r.ReadPerToken)), r.ReadsPerTok)
		if r.RowsNeeded > 0 {
			fmt.Fprintf(w, "; reuse %.3f (%d of %d rows were resident)", r.Reuse, r.RowsNeeded-r.RowsRead, r.RowsNeeded)
		}
		fmt.Fprintln(w)
	}
}

func seconds(s float64) string { return clix.Duration(time.Duration(s * float64(time.Second))) }
