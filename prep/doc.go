// Package prep is the offline side: the stages that turn a checkpoint into a bundle.
//
//	importer   a GGUF file → a checkpoint
//	self       checkpoint → calibration text that the model writes
//	threshold  checkpoint + text → magnitude thresholds
//	capture    checkpoint + text + thresholds → masks and features
//	cluster    masks → centroids
//	train      features + centroid ids → predictor
//	vocab      checkpoint + text + centroid ids → score rows and joint vocabularies
//	moments    checkpoint + text → second moments of the residual stream
//	regress    moments → low-rank factors of the lookahead selector
//	repack     checkpoint → neuron records and the resident tensors
//	bundle     all of these → one directory (package assemble)
//	tune       bundle + text → what its selectors are worth, means of what they leave out
//	ladder     a bundle + text → what its choice of neurons costs
//	exporter   a bundle → a GGUF file
//	prepare    the stages in their order
//	calib      what they share of calibration: text, windows, the forward walk, file formats
//	lowrank    leading eigenvectors and 4-bit codes
//	stage      the rules they share: keys, resuming, locking, progress, reports
//
// Stages may import runtime/model, so that what is calibrated is what runs; no stage imports another, save bundle, which
// reads what they leave, and tune, which measures a bundle by ladder and has it published again. prepare alone knows the
// order. Start at prepare.Run.
package prep
