// Command npprep prepares a model on the offline side: it calibrates, repacks and bundles a checkpoint for nprun.
package main

import (
	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
)

func main() { clix.Main(app()) }

func app() *cli.App {
	return &cli.App{
		Name:      "npprep",
		Usage:     "prepare a model for nprun",
		UsageText: "npprep COMMAND [flags]",
		Description: "Most people need only this:\n\n   npprep prepare --model DIR --text calibration.txt --out model.np\n\n" +
			"Without a text at hand, --text self:100000 lets the model write its own.\n\n" +
			"prepare runs repack, threshold, capture, cluster, train, moments, regress and bundle in order and skips what is up to date.\n" +
			"It ends with report.html in the work folder. Ctrl-C is safe: the next run goes on where this one stopped.\n\n" +
			"Exit codes: 0 done, 2 usage, 3 bad input, 4 does not fit, 5 I/O, 130 interrupted.",
		Commands: []*cli.Command{
			importCommand(),
			exportCommand(),
			stageCommand("self", "let the model write its own calibration text",
				"npprep self --model DIR --work DIR --tokens 100000", modelFlag, workFlag, selfFlags),
			stageCommand("threshold", "count magnitudes of activations over calibration text",
				"npprep threshold --model DIR --work DIR --text FILE", modelFlag, workFlag, textFlags, shardFlags),
			stageCommand("capture", "capture masks and features over calibration text",
				"npprep capture --model DIR --work DIR --text FILE", modelFlag, workFlag, textFlags, shardFlags),
			stageCommand("cluster", "cluster masks into centroids",
				"npprep cluster --model DIR --work DIR --centroids 512", modelFlag, workFlag, clusterFlags),
			stageCommand("train", "train the predictor of centroids",
				"npprep train --model DIR --work DIR --epochs 4", modelFlag, workFlag, trainFlags),
			stageCommand("vocab", "make the score rows of the selectors paper+ and centroid",
				"npprep vocab --model DIR --work DIR --text FILE --selectors paper+,centroid", modelFlag, workFlag, vocabTextFlags, selectorFlags, vocabFlags, denseFlag),
			stageCommand("train-joint", "train the network of the selector centroid",
				"npprep train-joint --model DIR --work DIR", modelFlag, workFlag, trainFlags),
			stageCommand("moments", "sum second moments of the residual stream over calibration text",
				"npprep moments --model DIR --work DIR --text FILE", modelFlag, workFlag, sampleFlags, lookaheadFlags, shardFlags),
			stageCommand("regress", "solve the lookahead selector's factors from the moments",
				"npprep regress --model DIR --work DIR --rank 256", modelFlag, workFlag, lookaheadFlags, regressFlags),
			stageCommand("repack", "turn the checkpoint into neuron records",
				"npprep repack --model DIR --work DIR", modelFlag, workFlag, repackFlags),
			stageCommand("bundle", "put everything together and publish the bundle",
				"npprep bundle --model DIR --work DIR --out model.np --sparsity 0.62", modelFlag, workFlag, bundleFlags, selectorFlags),
			stageCommand("tune", "measure the bundle's selectors and publish it with what was found",
				"npprep tune --model DIR --work DIR --text FILE --out model.np --sparsity 0.62", modelFlag, workFlag, bundleFlags, selectorFlags, tuneTextFlags, tuneFlags),
			withReport(prepareCommand()),
			evalCommand(),
			clix.InspectCommand("npprep"),
			clix.VerifyCommand("npprep"),
			versionCommand(),
			clix.CompletionCommand("npprep"),
		},
	}
}
