package threshold

import (
	"context"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/stage"
)

// Options of the threshold stage.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string // text files, joined in this order
	Tokens     int      // tokens of text that capture will use; 0 = calib.DefaultTokens
	Window     int      // tokens per window; 0 = 512, at most the model's context
	Density    float64  // wanted token density, only for the report; 0 = 0.40
}

// Run counts magnitudes. The counters do not depend on the density.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) { panic("being written") }
