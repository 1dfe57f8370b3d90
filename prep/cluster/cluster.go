package cluster

import (
	"context"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/stage"
)

// Options of the cluster stage, which needs the capture stage's output in the same work folder.
type Options struct {
	Config    *checkpoint.Config
	Centroids int // K; 0 = 512
}

// Run clusters the masks of every layer and projection.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) { panic("being written") }

// PruneReport tells what Prune achieved.
type PruneReport struct {
	Centroids        int     // largest K_eff of a table
	TokenDensity     float64 // of the captured masks, wanted
	CentroidDensity  float64 // √(K_max/M), as achieved
	MeanIntersection float64 // neurons in gate ∩ up over calibration tokens and layers ≥ 1, true ids
}

// Prune cuts every centroid to density √(K_max/M) and writes the bundle's centroids member to out.
// work is the folder that holds the threshold, capture and cluster stages' outputs.
func Prune(ctx context.Context, work string, cfg *checkpoint.Config, kMax int, out string) (PruneReport, error) {
	panic("being written")
}

// Files lists the stages' outputs that Prune reads, for the key of the stage that calls it.
func Files(work string) ([]string, error) { panic("being written") }
