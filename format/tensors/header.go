package tensors

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/nlpodyssey/safetensors"

	"neuroprefetcher/format"
)

// header is a checked header.
type header struct {
	infos map[string]Info
	names []string // sorted
	meta  map[string]string
}

// parseHeader checks the header bytes h of a file whose payload has the given length, and makes offsets absolute.
// The payload itself is not looked at.
func parseHeader(path string, h []byte, payload int64) (header, error) {
	if len(h) == 0 {
		return header{}, format.Corruptf("%s: empty header", path)
	}
	if h[0] != '{' {
		return header{}, format.Corruptf("%s: header does not begin with '{' but with byte 0x%02x", path, h[0])
	}
	if err := format.CheckJSON(h); err != nil {
		return header{}, format.Corruptf("%s: header: %w", path, err)
	}
	var md safetensors.Metadata
	if err := json.Unmarshal(h, &md); err != nil {
		return header{}, explain(path, h, err)
	}
	list := make([]Info, 0, 16)
	for name, t := range md.Tensors() {
		info, err := sized(path, name, t, payload)
		if err != nil {
			return header{}, err
		}
		list = append(list, info)
	}
	slices.SortFunc(list, byOffset)
	if err := tiled(path, list, payload); err != nil {
		return header{}, err
	}
	out := header{infos: make(map[string]Info, len(list)), meta: md.Metadata()}
	base := 8 + int64(len(h))
	for _, i := range list {
		i.Begin += base
		i.End += base
		out.infos[i.Name] = i
		out.names = append(out.names, i.Name)
	}
	slices.Sort(out.names)
	return out, nil
}

func byOffset(a, b Info) int {
	switch {
	case a.Begin != b.Begin:
		return cmpInt(a.Begin, b.Begin)
	case a.End != b.End:
		return cmpInt(a.End, b.End)
	}
	return strings.Compare(a.Name, b.Name)
}

func cmpInt(a, b int64) int {
	if a < b {
		return -1
	}
	return 1
}

// sized checks one tensor by itself: its range lies in the payload and holds exactly its shape.
func sized(path, name string, t *safetensors.TensorInfo, payload int64) (Info, error) {
	bad := func(f string, a ...any) (Info, error) {
		return Info{}, format.Corruptf("%s: tensor %q: %s", path, name, fmt.Sprintf(f, a...))
	}
	begin, end := t.DataOffsets[0], t.DataOffsets[1]
	if len(t.Shape) > format.MaxTensorRank {
		return bad("%d dimensions are more than the %d allowed", len(t.Shape), format.MaxTensorRank)
	}
	shape, want, ok := byteSize(t.Shape, t.DType)
	if !ok {
		return bad("shape %v overflows", t.Shape)
	}
	if end < begin {
		return bad("data_offsets [%d,%d] end before they begin", begin, end)
	}
	if end-begin != want {
		return bad("shape %v of %s takes %d bytes, data_offsets [%d,%d] hold %d", t.Shape, t.DType, want, begin, end, end-begin)
	}
	if end > uint64(payload) {
		return bad("data_offsets [%d,%d] reach past the end of the payload of %d bytes: the file is cut short", begin, end, payload)
	}
	return Info{Name: name, DType: t.DType.String(), Shape: shape, Begin: int64(begin), End: int64(end)}, nil
}

// byteSize multiplies out a shape; ok is false if it does not fit 63 bits.
func byteSize(dims []uint64, dt safetensors.DType) (shape []int, n uint64, ok bool) {
	n = dt.Size()
	shape = make([]int, len(dims))
	for i, d := range dims {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 || lo > math.MaxInt64 || d > math.MaxInt64 {
			return nil, 0, false
		}
		n, shape[i] = lo, int(d)
	}
	return shape, n, true
}

// tiled checks that the tensors, in the order of their ranges, cover the payload without gap, overlap or rest.
func tiled(path string, list []Info, payload int64) error {
	var at int64
	last := "the beginning"
	for _, i := range list {
		if i.Begin < at {
			return format.Corruptf("%s: tensor %q: data_offsets [%d,%d] overlap %s, which ends at %d", path, i.Name, i.Begin, i.End, last, at)
		}
		if i.Begin > at {
			return format.Corruptf("%s: tensor %q: data_offsets [%d,%d] leave a gap of %d bytes after %s", path, i.Name, i.Begin, i.End, i.Begin-at, last)
		}
		at = i.End
		last = fmt.Sprintf("tensor %q", i.Name)
	}
	if at != payload {
		return format.Corruptf("%s: %d bytes of the payload follow %s and belong to no tensor", path, payload-at, last)
	}
	return nil
}

// explain turns the parser's error into ours, and names a dtype that is not supported with its tensor.
func explain(path string, h []byte, err error) error {
	var raw map[string]map[string]json.RawMessage
	if json.Unmarshal(h, &raw) == nil {
		names := make([]string, 0, len(raw))
		for name := range raw {
			if name != "__metadata__" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			var dt string
			if json.Unmarshal(raw[name]["dtype"], &dt) != nil {
				continue
			}
			if _, perr := safetensors.ParseDType(dt); perr != nil {
				return format.Hint(format.Inputf("%s: tensor %q has dtype %q, which is not supported", path, name, dt),
					"weights must be F32, F16 or BF16; convert a quantised checkpoint first")
			}
		}
	}
	return format.Corruptf("%s: header: %w", path, err)
}
