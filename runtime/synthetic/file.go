package synthetic

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
)

// A trace file is in the safetensors encoding: for every layer l ≥ 1 first.l (KMax), in.l and out.l (Tokens, n), all I32 and
// ascending within a set; the parameters are JSON in the metadata under "trace".
const traceKey = "trace"

// TraceName is the name of a trace's file beside the bundle it is for.
func TraceName(shape string, p TraceParams) string {
	return fmt.Sprintf("%s-k%d-reuse%g-run%g-t%d-seed%d.trace", shape, p.KMax, p.Reuse, p.Run, p.Tokens, p.Seed)
}

// EnsureTrace returns the trace with these parameters from dir, making its file if there is none or another one.
func EnsureTrace(dir, shape string, p TraceParams) (*Trace, error) {
	path := filepath.Join(dir, TraceName(shape, p))
	if t, err := ReadTrace(path); err == nil && t.Params == p {
		return t, nil
	}
	t, err := NewTrace(p)
	if err != nil {
		return nil, err
	}
	return t, t.Write(path)
}

// Write makes the trace's file, atomically.
func (t *Trace) Write(path string) error {
	meta, err := json.Marshal(t.Params)
	if err != nil {
		return err
	}
	wide := func(v []uint16) []int32 {
		w := make([]int32, len(v))
		for i, n := range v {
			w[i] = int32(n)
		}
		return w
	}
	var es []tensors.Entry
	for l := 1; l < t.Params.Layers; l++ {
		es = append(es,
			tensors.I32Entry(fmt.Sprintf("first.%d", l), []int{t.Params.KMax}, wide(t.first[l-1])),
			tensors.I32Entry(fmt.Sprintf("in.%d", l), []int{t.Params.Tokens, t.n}, wide(t.in[l-1])),
			tensors.I32Entry(fmt.Sprintf("out.%d", l), []int{t.Params.Tokens, t.n}, wide(t.out[l-1])))
	}
	return tensors.Write(path, es, map[string]string{traceKey: string(meta)})
}

// ReadTrace reads a trace's file and holds it to its parameters: every step exchanges members for non-members.
func ReadTrace(path string) (*Trace, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	meta, ok := f.Metadata()[traceKey]
	t := &Trace{}
	if !ok || json.Unmarshal([]byte(meta), &t.Params) != nil {
		return nil, format.Inputf("%s: not a trace", path)
	}
	if err := t.Params.Check(); err != nil {
		return nil, format.Corruptf("%s: %w", path, err)
	}
	t.n = t.Params.Incoming()
	for l := 1; l < t.Params.Layers; l++ {
		if err := t.readLayer(f, l); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Trace) readLayer(f *tensors.File, l int) error {
	p := t.Params
	read := func(what string, shape ...int) ([]uint16, error) {
		name := fmt.Sprintf("%s.%d", what, l)
		in, ok := f.Info(name)
		same := ok && in.DType == "I32" && len(in.Shape) == len(shape)
		for i := range shape {
			same = same && in.Shape[i] == shape[i]
		}
		if !same {
			return nil, format.Corruptf("%s: tensor %s is missing or not I32 %v", f.Path(), name, shape)
		}
		v, err := f.I32(name)
		if err != nil {
			return nil, err
		}
		ids, row := make([]uint16, len(v)), shape[len(shape)-1]
		for i, n := range v {
			if n < 0 || int(n) >= p.Neurons || i%row > 0 && n <= v[i-1] {
				return nil, format.Corruptf("%s: tensor %s: ids must ascend within 0..%d", f.Path(), name, p.Neurons-1)
			}
			ids[i] = uint16(n)
		}
		return ids, nil
	}
	first, err := read("first", p.KMax)
	if err != nil {
		return err
	}
	in, err := read("in", p.Tokens, t.n)
	if err != nil {
		return err
	}
	out, err := read("out", p.Tokens, t.n)
	if err != nil {
		return err
	}
	member := make([]bool, p.Neurons)
	for _, n := range first {
		member[n] = true
	}
	for i := range out {
		if !member[out[i]] {
			return format.Corruptf("%s: layer %d, step %d: neuron %d goes out and is not in", f.Path(), l, i/t.n, out[i])
		}
		if member[in[i]] {
			return format.Corruptf("%s: layer %d, step %d: neuron %d comes in and is there", f.Path(), l, i/t.n, in[i])
		}
		if (i+1)%t.n == 0 {
			for k := i + 1 - t.n; k <= i; k++ {
				member[out[k]], member[in[k]] = false, true
			}
		}
	}
	t.first, t.in, t.out = append(t.first, first), append(t.in, in), append(t.out, out)
	return nil
}
