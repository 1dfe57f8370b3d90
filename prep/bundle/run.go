package assemble

import (
	"context"

	"neuroprefetcher/prep/stage"
)

// Params of the stage.
type Params struct {
	Model    string  // checkpoint directory
	Out      string  // bundle directory
	Dense    bool    // no centroids and no predictor
	KMax     int     // neurons of a sparse layer; 0: from Sparsity
	Sparsity float64 // 1 − K_max/M; used when KMax is 0
	Tool     string  // program and version, for the manifest
}

// Run publishes the bundle at p.Out.
func Run(ctx context.Context, e *stage.Env, p Params) (stage.Report, error) { return run(ctx, e, p) }

func run(ctx context.Context, e *stage.Env, p Params) (stage.Report, error) { panic("next commit") }
