// Package calibtest makes small captures for tests of the stages after capture. Start at Capture.
package calibtest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Config is a small shape.
func Config(layers, hidden, neurons int) *checkpoint.Config {
	return &checkpoint.Config{ModelType: "llama", Layers: layers, Hidden: hidden, Intermediate: neurons, Heads: 2, KVHeads: 1,
		HeadDim: hidden / 2, Vocab: 64, MaxPositions: 512, RMSEps: 1e-5, BOS: -1}
}

// Planted is a capture in which every token belongs to one of Groups groups, which decides its masks and features but
// for noise.
type Planted struct {
	Config *checkpoint.Config
	Tokens int
	Window int
	Parts  int
	Groups int
	Noise  float64 // probability that a mask bit flips
	Seed   uint64
}

// Group is the group of a token.
func (p Planted) Group(token int) int {
	return int(rand.New(rand.NewPCG(p.Seed, uint64(token))).IntN(p.Groups))
}

// Masks are the masks of a layer and projection (Tokens, W).
func (p Planted) Masks(proj, layer int) []uint64 {
	m := p.Config.Intermediate
	w := predictor.Words(m)
	kind := make([][]bool, p.Groups)
	rng := rand.New(rand.NewPCG(p.Seed, uint64(1e9+2*layer+proj)))
	for g := range kind {
		kind[g] = make([]bool, m)
		for n := range kind[g] {
			kind[g][n] = rng.Float64() < 0.4
		}
	}
	out := make([]uint64, p.Tokens*w)
	for t := range p.Tokens {
		for n, on := range kind[p.Group(t)] {
			if on != (rng.Float64() < p.Noise) {
				out[t*w+n/64] |= 1 << (n % 64)
			}
		}
	}
	return out
}

// Feature is feature vector j of all tokens (Tokens, H).
func (p Planted) Feature(j int) []float32 {
	h := p.Config.Hidden
	rng := rand.New(rand.NewPCG(p.Seed, uint64(2e9+j)))
	centre := make([]float64, p.Groups*h)
	for i := range centre {
		centre[i] = rng.NormFloat64()
	}
	out := make([]float32, p.Tokens*h)
	for i := range out {
		out[i] = float32(centre[p.Group(i/h)*h+i%h] + 0.3*rng.NormFloat64())
	}
	return out
}

// Capture writes the capture as the stage of that name in e.Work.
func Capture(ctx context.Context, e *stage.Env, p Planted) error {
	cfg := p.Config
	spec := stage.Spec{Name: "capture", Version: 1, Params: p}
	_, err := stage.Run(ctx, e, spec, func(ctx context.Context, dir string, _ *stage.Progress) (map[string]any, error) {
		meta := calib.Meta{Layers: cfg.Layers, Hidden: cfg.Hidden, Neurons: cfg.Intermediate, Tokens: p.Tokens, Window: p.Window,
			Density: 0.4, Thresholds: make(calib.Thresholds, cfg.Layers)}
		for l := range meta.Thresholds {
			meta.Thresholds[l] = [2]uint16{kernels.F16Bits(0.25), kernels.F16Bits(0.5)}
		}
		var masks [][2][]uint64
		for l := range cfg.Layers {
			masks = append(masks, [2][]uint64{p.Masks(0, l), p.Masks(1, l)})
		}
		w, h := predictor.Words(cfg.Intermediate), cfg.Hidden
		for i := range p.Parts {
			lo, hi := i*p.Tokens/p.Parts, (i+1)*p.Tokens/p.Parts
			meta.PartTokens = append(meta.PartTokens, hi-lo)
			var entries, feats []tensors.Entry
			for l := range masks {
				for proj := range predictor.Projections {
					entries = append(entries, tensors.U64Entry(predictor.TableName(proj, l), []int{hi - lo, w}, masks[l][proj][lo*w:hi*w]))
				}
			}
			all, first := Importance(cfg, i)
			entries = append(entries, calib.F64Entry(calib.ImportanceName, []int{cfg.Layers, cfg.Intermediate}, all),
				calib.F64Entry(calib.Importance0Name, []int{cfg.Layers, cfg.Intermediate}, first))
			for j := range predictor.FeatureNames {
				f := make([]uint16, (hi-lo)*h)
				kernels.F32ToF16(f, p.Feature(j)[lo*h:hi*h])
				feats = append(feats, tensors.F16Entry(calib.FeatureName(j), []int{hi - lo, h}, f))
			}
			if err := tensors.Write(filepath.Join(dir, calib.MasksFile(i)), entries, nil); err != nil {
				return nil, err
			}
			if err := tensors.Write(filepath.Join(dir, calib.FeaturesFile(i)), feats, nil); err != nil {
				return nil, err
			}
		}
		b, err := json.Marshal(meta)
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(dir, calib.MetaFile), b, 0o666)
	})
	return err
}

// Importance is part i's sums (N, M): all tokens, position 0.
func Importance(cfg *checkpoint.Config, i int) (all, first []float64) {
	rng := rand.New(rand.NewPCG(99, uint64(i)))
	for range cfg.Layers * cfg.Intermediate {
		all, first = append(all, rng.Float64()), append(first, rng.Float64())
	}
	return all, first
}
