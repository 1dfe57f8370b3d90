package train

import (
	"encoding/json"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
)

// stateFile holds what the next epoch needs; the leading dot keeps it out of the stage's outputs.
const stateFile = ".state.safetensors"

// progress is what has been learnt so far.
type progress struct {
	Epoch   int       // epochs done
	Step    int       // steps done
	History []quality // held-out quality after each epoch
	Losses  []float64 // mean training loss of each epoch

	w, m, v *weights
}

// save writes the state atomically.
func (p *progress) save(dir string) error {
	meta, err := json.Marshal(p)
	if err != nil {
		return err
	}
	n := []int{len(p.w.flat)}
	path := filepath.Join(dir, stateFile)
	if err := tensors.Write(path, []tensors.Entry{
		tensors.F32Entry("w", n, p.w.flat), tensors.F32Entry("m", n, p.m.flat), tensors.F32Entry("v", n, p.v.flat),
	}, map[string]string{"progress": string(meta)}); err != nil {
		return err
	}
	return calib.Seal(path)
}

// resume reads a state of this shape, or returns nil if there is none that has its recorded checksum.
func resume(dir string, s shape) (*progress, error) {
	path := filepath.Join(dir, stateFile)
	if !calib.Sealed(path) {
		return nil, nil
	}
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &progress{}
	if err := json.Unmarshal([]byte(f.Metadata()["progress"]), p); err != nil {
		return nil, format.Corruptf("%s: %w", path, err)
	}
	for name, dst := range map[string]**weights{"w": &p.w, "m": &p.m, "v": &p.v} {
		flat, err := f.F32(name)
		if err != nil {
			return nil, err
		}
		if len(flat) != s.count() {
			return nil, format.Corruptf("%s: tensor %s has %d elements, the network %d: delete the file", path, name, len(flat), s.count())
		}
		*dst = s.over(flat)
	}
	return p, nil
}

// write writes the network as predictor.safetensors: matrices in float16, norms and biases in float32.
func write(path string, s shape, w *weights) error {
	var entries []tensors.Entry
	for _, t := range s.layout(w) {
		if !t.half() {
			entries = append(entries, tensors.F32Entry(t.name, t.shape, t.data))
			continue
		}
		h := make([]uint16, len(t.data))
		kernels.F32ToF16(h, t.data)
		for i, b := range h {
			if b&0x7c00 == 0x7c00 {
				return format.Inputf("training diverged: tensor %s holds %v, more than float16 can: lower --lr", t.name, t.data[i])
			}
		}
		entries = append(entries, tensors.F16Entry(t.name, t.shape, h))
	}
	return tensors.Write(path, entries, nil)
}
