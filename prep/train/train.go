package train

import (
	"context"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/stage"
)

// File is the stage's output inside Work/train: the bundle's predictor.safetensors.
const File = "predictor.safetensors"

// Options of the train stage, which needs the capture and cluster stages' outputs in the same work folder.
type Options struct {
	Config *checkpoint.Config
	Dim    int     // T; 0 = DefaultDim
	Epochs int     // 0 = 4
	Batch  int     // 0 = 256
	LR     float64 // 0 = 1e-3
}

// Run trains the predictor.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) { panic("being written") }
