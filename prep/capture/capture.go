package capture

import (
	"context"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/stage"
)

// Options of the capture stage, which needs the threshold stage's output in the same work folder.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Texts      []string
	Tokens     int     // 0 = calib.DefaultTokens
	Window     int     // 0 = 512
	Density    float64 // token density; 0 = 0.40
}

// Run captures masks, features and importance sums.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) { panic("being written") }
