package engine

import (
	"time"

	"neuroprefetcher/runtime/storage"
)

// Stats counts what the engine did since the last ResetStats. Times add up to Total.
type Stats struct {
	Prompt, Tokens int           // tokens prefilled and tokens stepped
	PrefillTime    time.Duration // of the prompts
	Total          time.Duration // of the steps
	IOWait         time.Duration // of the steps, waiting for rows
	Compute        time.Duration
	Predict        time.Duration // selector, chooser, slot maps
	Needed, Read   int64         // rows of the sparse layers in steps: computed, and read for it
	PrefillIO      storage.Stats // reads of the prompts
	StepIO         storage.Stats // reads of the steps
}

// Other is what the named parts of a step's time leave.
func (s Stats) Other() time.Duration { return s.Total - s.IOWait - s.Compute - s.Predict }

// Reuse is 1 − rows read ÷ rows needed over the sparse layers; 0 without any.
func (s Stats) Reuse() float64 {
	if s.Needed == 0 {
		return 0
	}
	return 1 - float64(s.Read)/float64(s.Needed)
}

func addIO(dst *storage.Stats, after, before storage.Stats) {
	dst.Reads += after.Reads - before.Reads
	dst.Bytes += after.Bytes - before.Bytes
	dst.Wanted += after.Wanted - before.Wanted
	dst.Busy += after.Busy - before.Busy
}

// Stats returns the counts so far.
func (e *Engine) Stats() Stats { return e.stats }

// ResetStats sets the counts to zero.
func (e *Engine) ResetStats() { e.stats = Stats{} }
