package calib

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
)

// MetaFile describes a capture; it is written last.
const MetaFile = "capture.json"

// maxMeta bounds MetaFile: a line per layer and part.
const maxMeta = 16 << 20

// Meta is the content of MetaFile.
type Meta struct {
	Layers     int        `json:"layers"`
	Hidden     int        `json:"hidden"`
	Neurons    int        `json:"neurons"`
	Tokens     int        `json:"tokens"`
	Window     int        `json:"window"`
	Density    float64    `json:"density"` // wanted token density
	Text       string     `json:"text_sha256"`
	Thresholds Thresholds `json:"thresholds"`  // float16 bit patterns
	PartTokens []int      `json:"part_tokens"` // tokens of each part
}

// A part has two files: masks (gate.l, up.l: U64 (T, W); importance, importance0: F64 (N, M), sums over the part's
// tokens, and over those at position 0 of their window) and features (feat.*: F16 (T, H)).
func MasksFile(part int) string    { return fmt.Sprintf("masks-%05d.safetensors", part) }
func FeaturesFile(part int) string { return fmt.Sprintf("features-%05d.safetensors", part) }
func FeatureName(j int) string     { return "feat." + predictor.FeatureNames[j] }

const (
	ImportanceName  = "importance"
	Importance0Name = "importance0"
)

// F64Entry is a tensor of float64.
func F64Entry(name string, shape []int, data []float64) tensors.Entry {
	return tensors.Entry{Name: name, DType: "F64", Shape: shape, Write: func(w io.Writer) error {
		buf := make([]byte, 0, 8*4096)
		for len(data) > 0 {
			n := min(len(data), 4096)
			buf = buf[:0]
			for _, v := range data[:n] {
				buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(v))
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	}}
}

// Capture is a finished capture, its files mapped.
type Capture struct {
	Dir string
	Meta
	masks, features []*tensors.File
	feat            [][4][]byte // per part: F16 (T, H)
	starts          []int       // first token of each part, and the total
}

// ReadMeta reads a capture's description and holds it against the model's shape.
func ReadMeta(dir string, cfg *checkpoint.Config) (*Meta, error) {
	path := filepath.Join(dir, MetaFile)
	b, err := format.ReadFile(path, maxMeta)
	if err != nil {
		return nil, format.Hint(format.Inputf("no finished capture: %w", err), "run npprep capture with the same --work")
	}
	c := &Meta{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, format.Corruptf("%s: %w", path, err)
	}
	if c.Layers != cfg.Layers || c.Hidden != cfg.Hidden || c.Neurons != cfg.Intermediate || len(c.Thresholds) != c.Layers {
		return nil, format.Inputf("%s: captured from another model shape (%d layers, %d hidden, %d neurons)", path, c.Layers, c.Hidden, c.Neurons)
	}
	if c.Window < 1 {
		return nil, format.Corruptf("%s: windows of %d tokens", path, c.Window)
	}
	for l, t := range c.Thresholds {
		if t[0] > infBits || t[1] > infBits {
			return nil, format.Corruptf("%s: layer %d: thresholds %v are no float16 magnitudes", path, l, t)
		}
	}
	return c, nil
}

// OpenCapture opens the capture stage's folder and holds every file against the shapes.
func OpenCapture(dir string, cfg *checkpoint.Config) (_ *Capture, err error) {
	path := filepath.Join(dir, MetaFile)
	m, err := ReadMeta(dir, cfg)
	if err != nil {
		return nil, err
	}
	c := &Capture{Dir: dir, Meta: *m}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	total := 0
	for i, n := range c.PartTokens {
		c.starts = append(c.starts, total)
		total += n
		if n < 1 {
			return nil, format.Corruptf("%s: part %d has %d tokens", path, i, n)
		}
		if err := c.openPart(i, n); err != nil {
			return nil, err
		}
	}
	c.starts = append(c.starts, total)
	if total != c.Tokens || total == 0 {
		return nil, format.Corruptf("%s: parts hold %d tokens, not %d", path, total, c.Tokens)
	}
	return c, nil
}

func (c *Capture) openPart(i, n int) error {
	f, err := tensors.Open(filepath.Join(c.Dir, MasksFile(i)))
	if err != nil {
		return err
	}
	c.masks = append(c.masks, f)
	for l := range c.Layers {
		for p := range predictor.Projections {
			if err := want(f, predictor.TableName(p, l), "U64", n, predictor.Words(c.Neurons)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{ImportanceName, Importance0Name} {
		if err := want(f, name, "F64", c.Layers, c.Neurons); err != nil {
			return err
		}
	}
	if f, err = tensors.Open(filepath.Join(c.Dir, FeaturesFile(i))); err != nil {
		return err
	}
	c.features = append(c.features, f)
	var feat [4][]byte
	for j := range feat {
		if err := want(f, FeatureName(j), "F16", n, c.Hidden); err != nil {
			return err
		}
		if in, _ := f.Info(FeatureName(j)); in.Begin%2 != 0 {
			return format.Inputf("%s: tensor %s begins at an odd offset", f.Path(), in.Name)
		}
		if feat[j], err = f.Bytes(FeatureName(j)); err != nil {
			return err
		}
	}
	c.feat = append(c.feat, feat)
	return nil
}

func want(f *tensors.File, name, dtype string, rows, cols int) error {
	in, ok := f.Info(name)
	if !ok || in.DType != dtype || len(in.Shape) != 2 || in.Shape[0] != rows || in.Shape[1] != cols {
		return format.Inputf("%s: tensor %s is missing or not %s (%d, %d)", f.Path(), name, dtype, rows, cols)
	}
	return nil
}

// Close unmaps the files.
func (c *Capture) Close() {
	for _, f := range append(c.masks, c.features...) {
		f.Close()
	}
	c.masks, c.features, c.feat = nil, nil, nil
}

// Masks reads the masks of a layer and projection into dst (Tokens, W).
func (c *Capture) Masks(proj, layer int, dst []uint64) error {
	for _, f := range c.masks {
		v, err := f.U64(predictor.TableName(proj, layer))
		if err != nil {
			return err
		}
		dst = dst[copy(dst, v):]
		f.Release(predictor.TableName(proj, layer))
	}
	return nil
}

// Densities is the share of mask bits that are set, per layer: gate, up.
func (c *Capture) Densities() ([][2]float64, error) {
	out := make([][2]float64, c.Layers)
	for l := range out {
		for p := range predictor.Projections {
			bits := 0
			for _, f := range c.masks {
				v, err := f.U64(predictor.TableName(p, l))
				if err != nil {
					return nil, err
				}
				bits += kernels.Popcount(v)
				f.Release(predictor.TableName(p, l))
			}
			out[l][p] = float64(bits) / float64(c.Tokens) / float64(c.Neurons)
		}
	}
	return out, nil
}

// Feature reads feature vector j of a token into dst (H).
func (c *Capture) Feature(j, token int, dst []float32) {
	part := 0
	for token >= c.starts[part+1] {
		part++
	}
	row := 2 * c.Hidden
	at := (token - c.starts[part]) * row
	b := c.feat[part][j][at : at+row]
	kernels.F16ToF32(dst, kernels.BytesU16(b))
}

// Importance returns each layer's sums (N, M) over all tokens, and over those at position 0 of a window, in the order
// of the parts.
func (c *Capture) Importance() (all, first [][]float64, err error) {
	all, first = make([][]float64, c.Layers), make([][]float64, c.Layers)
	for l := range all {
		all[l], first[l] = make([]float64, c.Neurons), make([]float64, c.Neurons)
	}
	for _, f := range c.masks {
		for i, name := range []string{ImportanceName, Importance0Name} {
			b, err := f.Bytes(name)
			if err != nil {
				return nil, nil, err
			}
			dst := [2][][]float64{all, first}[i]
			for l := range dst {
				for n := range dst[l] {
					v := math.Float64frombits(binary.LittleEndian.Uint64(b[8*(l*c.Neurons+n):]))
					if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
						return nil, nil, format.Corruptf("%s: tensor %s: layer %d, neuron %d is %v", f.Path(), name, l, n, v)
					}
					dst[l][n] += v
				}
			}
		}
	}
	return all, first, nil
}

// Windows are the capture's windows, in the order of its tokens.
func (c *Capture) Windows() []Window { return Cut(c.Tokens, c.Window) }
