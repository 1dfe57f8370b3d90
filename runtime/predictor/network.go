package predictor

import (
	"fmt"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
)

// The network, with rms(x) = x / √(mean(x²) + Eps) and ⊙ the elementwise product:
//
//	x = Σ_j proj_j · rms(f_j) + gate0[id]          j over the four feature vectors of layer 0
//	x = x + w2_i · silu(w1_i · (rms(x) ⊙ norm_i))  for i in 0..Blocks-1
//	h = rms(x) ⊙ final
//	logits of a table = head · h + bias             for every layer ≥ 1, gate and up
const (
	Blocks = 4    // residual blocks
	Expand = 2    // inner width of a block, in multiples of T
	Eps    = 1e-5 // added to the mean square in every norm
)

// Limits on what a predictor or centroid file may ask for.
const (
	MaxDim       = 1 << 13 // T: sixteen times the paper's
	MaxCentroids = 1 << 16 // K: ids are stored in 16 bits while training
)

// FeatureNames are the four feature vectors in the order of Features; capture files use them too.
var FeatureNames = [4]string{"embed", "attn", "mlp", "resid"}

// Projections are the two masked projections of a layer, in the order used everywhere.
var Projections = [2]string{"gate", "up"}

// Names of the tensors in predictor.safetensors. Matrices are F16, norms and biases F32.
func ProjName(j int) string      { return "proj." + FeatureNames[j] }               // (T, H)
func BlockNormName(i int) string { return fmt.Sprintf("block.%d.norm", i) }         // (T)
func BlockW1Name(i int) string   { return fmt.Sprintf("block.%d.w1", i) }           // (Expand·T, T)
func BlockW2Name(i int) string   { return fmt.Sprintf("block.%d.w2", i) }           // (T, Expand·T)
func HeadName(p, l int) string   { return HeadOf(Projections[p], l) }               // (K, T)
func BiasName(p, l int) string   { return HeadName(p, l) + ".bias" }                // (K)
func TableName(p, l int) string  { return fmt.Sprintf("%s.%d", Projections[p], l) } // table of projection p, layer l

// HeadOf is the head of a table of any name.
func HeadOf(table string, l int) string { return fmt.Sprintf("head.%s.%d", table, l) }

const (
	Gate0Name = "gate0.embedding" // (K of layer 0's gate table, T)
	FinalName = "final.norm"      // (T)
)

// rows2 checks that a tensor is a matrix of the dtype with cols columns and at most limit rows, and returns its rows.
func rows2(f *tensors.File, name, dtype string, cols, limit int) (int, error) {
	in, ok := f.Info(name)
	if !ok {
		return 0, format.Inputf("%s: tensor %s is missing: prepare the bundle again", f.Path(), name)
	}
	if in.DType != dtype || len(in.Shape) != 2 || in.Shape[1] != cols || in.Shape[0] < 1 || in.Shape[0] > limit {
		return 0, format.Inputf("%s: tensor %s is %s %v, want %s (1..%d, %d)", f.Path(), name, in.DType, in.Shape, dtype, limit, cols)
	}
	return in.Shape[0], nil
}

// matrix reads a float16 matrix of exactly rows × cols.
func matrix(f *tensors.File, name string, rows, cols int) ([]uint16, error) {
	if err := wantShape(f, name, "F16", rows, cols); err != nil {
		return nil, err
	}
	return f.F16(name)
}

// vector reads a float32 vector of exactly n elements.
func vector(f *tensors.File, name string, n int) ([]float32, error) {
	if err := wantShape(f, name, "F32", n); err != nil {
		return nil, err
	}
	return f.F32(name)
}

func wantShape(f *tensors.File, name, dtype string, shape ...int) error {
	in, ok := f.Info(name)
	if !ok {
		return format.Inputf("%s: tensor %s is missing: prepare the bundle again", f.Path(), name)
	}
	same := in.DType == dtype && len(in.Shape) == len(shape)
	for i := range shape {
		same = same && in.Shape[i] == shape[i]
	}
	if !same {
		return format.Inputf("%s: tensor %s is %s %v, want %s %v", f.Path(), name, in.DType, in.Shape, dtype, shape)
	}
	return nil
}
