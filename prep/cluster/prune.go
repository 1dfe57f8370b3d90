package cluster

import (
	"context"
	"math"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// Pins is how many neurons of a layer stay resident whatever the scores: those of the largest mean importance at
// position 0 of a window, which carry the attention sink.
const Pins = 8

// PruneReport tells what Prune achieved.
type PruneReport struct {
	Centroids        int     // largest K_eff of a table
	TokenDensity     float64 // wanted density of the captured masks
	CentroidDensity  float64 // of the pruned centroids: √(K_max/M) to the next neuron
	MeanIntersection float64 // neurons in gate ∩ up, over calibration tokens with their own ids and layers ≥ 1
}

// Inputs are hashes of what Prune reads, for the key of the stage that calls it.
func Inputs(e *stage.Env) ([]string, error) {
	var in []string
	for _, name := range []string{"capture", "cluster"} {
		outputs, err := e.Outputs(name)
		if err != nil {
			return nil, err
		}
		in = append(in, calib.Digest(outputs))
	}
	return in, nil
}

// Prune cuts every centroid of the layers ≥ 1 to density √(K_max/M), so that two independent ones would meet in K_max
// neurons: the neurons that most members have stay, ties to the lower id. It writes the bundle's centroids member to
// out. work holds the capture and cluster stages' folders.
func Prune(ctx context.Context, work string, cfg *checkpoint.Config, kMax int, out string) (PruneReport, error) {
	m := cfg.Intermediate
	if kMax < 1 || kMax > m {
		return PruneReport{}, format.Inputf("K_max %d: must be 1..%d", kMax, m)
	}
	c, err := calib.OpenCapture(filepath.Join(work, "capture"), cfg)
	if err != nil {
		return PruneReport{}, err
	}
	defer c.Close()
	all, first, err := c.Importance()
	if err != nil {
		return PruneReport{}, err
	}
	keep := keepCount(kMax, m)
	r := PruneReport{TokenDensity: c.Density, CentroidDensity: float64(keep) / float64(m)}
	entries := []tensors.Entry{}
	for l := range cfg.Layers {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if l == 0 {
			t, err := calib.OpenTable(calib.TablePath(filepath.Join(work, "cluster"), 0, 0), m, c.Tokens)
			if err != nil {
				return r, err
			}
			cent, err := t.Centroids()
			t.Close()
			if err != nil {
				return r, err
			}
			r.Centroids = t.K
			entries = append(entries, thresholdEntry(c), tensors.U64Entry(predictor.Layer0Name, []int{t.K, predictor.Words(m)}, cent))
			continue
		}
		var pruned [2][]uint64
		var ids [2][]int32
		for p := range predictor.Projections {
			t, err := calib.OpenTable(calib.TablePath(filepath.Join(work, "cluster"), p, l), m, c.Tokens)
			if err != nil {
				return r, err
			}
			counts, err := t.Counts()
			if err == nil {
				ids[p], err = t.IDs()
			}
			t.Close()
			if err != nil {
				return r, err
			}
			pruned[p] = pruneTable(counts, t.K, m, keep)
			r.Centroids = max(r.Centroids, t.K)
			entries = append(entries,
				tensors.U64Entry(predictor.TableName(p, l), []int{t.K, predictor.Words(m)}, pruned[p]),
				tensors.F32Entry(predictor.FreqName(p, l), []int{m}, frequency(counts, t.K, m, c.Tokens)))
		}
		r.MeanIntersection += meanIntersection(pruned[0], pruned[1], ids[0], ids[1], predictor.Words(m)) / float64(cfg.Layers-1)
		pins := top(first[l], min(Pins, kMax))
		entries = append(entries,
			tensors.F32Entry(predictor.StaticName(l), []int{m}, mean(all[l], c.Tokens)),
			tensors.I32Entry(predictor.PinsName(l), []int{len(pins)}, pins))
	}
	return r, tensors.Write(out, entries, nil)
}

// keepCount is how many neurons a pruned centroid keeps; all of them when K_max = M.
func keepCount(kMax, m int) int {
	return min(m, int(math.Round(math.Sqrt(float64(kMax)/float64(m))*float64(m))))
}

func thresholdEntry(c *calib.Capture) tensors.Entry {
	v := make([]float32, 2*c.Layers)
	for l := range c.Layers {
		for p := range predictor.Projections {
			v[2*l+p] = c.Thresholds.Value(l, p)
		}
	}
	return tensors.F32Entry(predictor.ThresholdName, []int{c.Layers, 2}, v)
}

// pruneTable keeps the keep neurons of each centroid that most of its members have.
func pruneTable(counts []int32, k, m, keep int) []uint64 {
	w := predictor.Words(m)
	out := make([]uint64, k*w)
	for c := range k {
		row, mask := counts[c*m:(c+1)*m], out[c*w:(c+1)*w]
		at := make([]int32, slices.Max(row)+2) // at[v]: neurons with count v
		for _, v := range row {
			at[v]++
		}
		cut, above := len(at)-1, 0 // all neurons above cut stay, and the first keep-above of those at it
		for above+int(at[cut]) < keep {
			above += int(at[cut])
			cut--
		}
		ties := keep - above
		for n, v := range row {
			if int(v) > cut || int(v) == cut && ties > 0 {
				mask[n/64] |= 1 << (n % 64)
				if int(v) == cut {
					ties--
				}
			}
		}
	}
	return out
}

// frequency is the share of tokens whose mask has the neuron.
func frequency(counts []int32, k, m, tokens int) []float32 {
	sum := make([]int64, m)
	for c := range k {
		for n, v := range counts[c*m : (c+1)*m] {
			sum[n] += int64(v)
		}
	}
	f := make([]float32, m)
	for n, v := range sum {
		f[n] = float32(float64(v) / float64(tokens))
	}
	return f
}

func meanIntersection(gate, up []uint64, gateIDs, upIDs []int32, w int) float64 {
	sum := 0
	for i, g := range gateIDs {
		u := int(upIDs[i])
		sum += kernels.AndCount(gate[int(g)*w:(int(g)+1)*w], up[u*w:(u+1)*w])
	}
	return float64(sum) / float64(len(gateIDs))
}

func mean(sum []float64, n int) []float32 {
	out := make([]float32, len(sum))
	for i, v := range sum {
		out[i] = float32(v / float64(n))
	}
	return out
}

// top returns the n indices of the largest values, ties to the lower index, ascending.
func top(v []float64, n int) []int32 {
	at := make([]int32, len(v))
	for i := range at {
		at[i] = int32(i)
	}
	slices.SortStableFunc(at, func(a, b int32) int {
		switch {
		case v[a] > v[b]:
			return -1
		case v[a] < v[b]:
			return 1
		}
		return 0
	})
	at = at[:n]
	slices.Sort(at)
	return at
}
