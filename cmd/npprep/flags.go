package main

import (
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
)

// A flagSet is the flags of one subject; commands put them together.
type flagSet func() []cli.Flag

func modelFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "model", Usage: "checkpoint `DIR`ectory (config.json, tokenizer.json, safetensors)"}}
}

func workFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "work", Usage: "work `DIR`ectory: intermediate results, for resuming and for skipping"}}
}

func textFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "text", Usage: "calibration text `FILE`; may be given again"},
		&cli.IntFlag{Name: "tokens", Usage: "use at most `N` tokens of the text (default: the stage's)"},
		&cli.IntFlag{Name: "window", Usage: "tokens per window (default: 512, at most the model's context)"},
		&cli.Float64Flag{Name: "density", Value: 0.40, Usage: "share of neurons of a token's mask"},
	}
}

func clusterFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "centroids", Value: 512, Usage: "centroids per layer and projection"}}
}

func trainFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "dim", Usage: "width of the predictor (default: from the model's size)"},
		&cli.IntFlag{Name: "epochs", Usage: "passes over the calibration tokens (default: 4)"},
		&cli.IntFlag{Name: "batch", Usage: "tokens per step (default: 256)"},
		&cli.Float64Flag{Name: "lr", Usage: "learning rate (default: 0.001)"},
	}
}

func repackFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "record-align", Usage: "4096: records on whole pages, their checksums in a side table (default: trailers on multiples of 512)"}}
}

func bundleFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "out", Usage: "bundle `DIR`ectory to publish"},
		&cli.BoolFlag{Name: "dense", Usage: "no calibration, centroids or predictor: for modes resident and stream only"},
		&cli.IntFlag{Name: "k-max", Usage: "neurons a sparse layer computes"},
		&cli.Float64Flag{Name: "sparsity", Value: 0.50, Usage: "share of neurons a sparse layer leaves out, where --k-max is not given"},
	}
}

// runFlags are every stage's.
func runFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of everything random; the same seed gives the same bytes"},
		&cli.IntFlag{Name: "threads", Usage: "threads (default: all cores); the bytes do not depend on it"},
		&cli.StringFlag{Name: "memory", Usage: "memory the process may use, such as 8GiB (default: what the machine and the container leave)"},
		clix.JSONFlag(),
		clix.QuietFlag(),
	}
}
