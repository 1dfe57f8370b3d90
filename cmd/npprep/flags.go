package main

import (
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
)

// A flagSet is the flags of one subject; commands put them together.
type flagSet func() []cli.Flag

func modelFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "model", Usage: "checkpoint directory, `DIR` (config.json, tokenizer.json, safetensors)"}}
}

func workFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "work", Usage: "work folder `DIR`: intermediate results, for resuming and for skipping"}}
}

// sampleFlags say what text is read.
func sampleFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "text", Usage: "calibration text `FILE`; may be given again. self:TOKENS lets the model write that much itself"},
		&cli.IntFlag{Name: "tokens", DefaultText: "200000, for moments from the hidden size", Usage: "use at most `N` tokens of the text"},
		&cli.IntFlag{Name: "window", DefaultText: "512, at most the model's context", Usage: "`TOKENS` per window"},
	}
}

// selfFlags are the self stage's.
func selfFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "tokens", Usage: "write `N` tokens of text"},
		&cli.IntFlag{Name: "window", DefaultText: "512, at most the model's context", Usage: "`TOKENS` that hang together"},
	}
}

// shardFlags are those of the stages whose work can be cut.
func shardFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "shard", Usage: "do part `I/N` of the work, such as 2/3, into a folder of its own; without it, the parts in the work folder are put together"}}
}

func textFlags() []cli.Flag {
	return append(sampleFlags(), &cli.Float64Flag{Name: "density", Value: 0.40, Usage: "`SHARE` of neurons of a token's mask"})
}

func denseFlag() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "dense-layers", DefaultText: "a third of the layers", Usage: "dense prefix of `N` layers that the bundle is made for"}}
}

// vocabTextFlags name the text that was captured.
func vocabTextFlags() []cli.Flag {
	return []cli.Flag{&cli.StringSliceFlag{Name: "text", Usage: "calibration text `FILE`, as for capture; may be given again"}}
}

// lookaheadFlags say from where layers are named; moments and regress must be given the same.
func lookaheadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{Name: "lookahead", DefaultText: "0.5", Usage: "name a layer's neurons `K` layers ahead of its input, in halves: 0.5 is behind the attention of the layer before"},
		denseFlag()[0],
		&cli.IntFlag{Name: "ramp", DefaultText: "0", Usage: "name the first `R` layers behind the dense prefix earlier, the first of them by R layers, so that their reads begin before it ends"},
	}
}

func regressFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "rank", DefaultText: "from the model's size", Usage: "rank `R` of the lookahead factors"}}
}

func clusterFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "centroids", Value: 512, Usage: "`K` centroids per layer and projection"}}
}

func vocabFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "joint-centroids", DefaultText: "from the model's size", Usage: "`K` centroids of a layer's joint vocabulary, for the selector centroid"},
		&cli.IntFlag{Name: "vocab-tokens", DefaultText: "65536, at most capture's", Usage: "make vocabularies and score rows from at most `N` of the captured tokens"},
	}
}

// tuneTextFlags are what tune shares with the stages that read text.
func tuneTextFlags() []cli.Flag {
	var out []cli.Flag
	for _, f := range sampleFlags() {
		if n := f.Names()[0]; n == "text" || n == "window" {
			out = append(out, f)
		}
	}
	return out
}

func tuneFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "tune-windows", DefaultText: "2048 tokens', or half as many from 2 billion parameters on", Usage: "measure selectors on `N` windows of the text, so that auto takes the best; -1 leaves it out"}}
}

func selectorFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "selectors", DefaultText: "lookahead,paper,static", Usage: "selectors `NAME,...` that the bundle has, first the default where none was measured; paper+ and centroid may be added"}}
}

func trainFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "dim", DefaultText: "from the model's size", Usage: "`WIDTH` of the predictor"},
		&cli.IntFlag{Name: "epochs", DefaultText: "4", Usage: "`N` passes over the calibration tokens"},
		&cli.IntFlag{Name: "batch", DefaultText: "256", Usage: "`TOKENS` per step"},
		&cli.Float64Flag{Name: "lr", DefaultText: "0.002", Usage: "highest learning `RATE`"},
	}
}

// importFlags let the predictor be trained elsewhere.
func importFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "import", Usage: "train no predictor: take the weights that pipelines/ddp/train.py wrote to `FILE`"}}
}

// exportFlags are the train command's.
func exportFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "export", Usage: "train nothing: write the data set for pipelines/ddp/train.py to `DIR`"}}
}

func repackFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "record-align", DefaultText: "trailers, on multiples of 512", Usage: "`4096`: records on whole pages, their checksums in a side table"}}
}

func bundleFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "out", Usage: "publish the bundle as directory `DIR`"},
		&cli.BoolFlag{Name: "dense", DisableDefaultText: true, Usage: "no calibration, centroids or predictor: for modes resident and stream only"},
		&cli.IntFlag{Name: "k-max", DefaultText: "from --sparsity", Usage: "`N` neurons a sparse layer computes"},
		&cli.Float64Flag{Name: "sparsity", Value: 0.50, Usage: "`SHARE` of neurons a sparse layer leaves out, where --k-max is not given"},
	}
}

// runFlags are every stage's.
func runFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`SEED` of everything random; the same seed gives the same bytes"},
		&cli.IntFlag{Name: "threads", DefaultText: "all cores", Usage: "`N` threads; the bytes do not depend on it"},
		&cli.StringFlag{Name: "memory", DefaultText: "what the machine and the container leave", Usage: "`SIZE` that the process may use, such as 8GiB"},
		clix.JSONFlag(),
		clix.QuietFlag(),
	}
}
