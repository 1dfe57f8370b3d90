package vocab

import (
	"path/filepath"
	"strings"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/prep/calib"
)

// prefixed marks a unit's tensors with the file that they belong to.
func prefixed(file string, es []tensors.Entry) []tensors.Entry {
	for i := range es {
		es[i].Name = file + "/" + es[i].Name
	}
	return es
}

// join copies the units' tensors into the stage's outputs.
func join(dir string, o Options) (map[string]any, error) {
	var left [][]float32
	files := map[string][]tensors.Entry{}
	for l := o.Dense; l < o.Checkpoint.Config.Layers; l++ {
		f, err := tensors.Open(unit(dir, l))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		x, err := f.F32(leftName)
		if err != nil {
			return nil, err
		}
		left = append(left, x)
		for _, name := range f.Names() {
			file, as, ok := strings.Cut(name, "/")
			if !ok {
				continue
			}
			x := f.Entry(name)
			x.Name = as
			files[file] = append(files[file], x)
		}
	}
	values := map[string]any{"dense": o.Dense, "rank": o.Rank}
	for file, key := range map[string]string{PaperFile: "paper_bytes", JointFile: "joint_bytes", calib.JointIDsFile: ""} {
		if files[file] == nil {
			continue
		}
		var meta map[string]string
		if file == calib.JointIDsFile {
			meta = calib.JointMeta(o.Tokens, o.Dense, o.Centroids)
		}
		if err := tensors.Write(filepath.Join(dir, file), files[file], meta); err != nil {
			return nil, err
		}
		if key == "" {
			continue
		}
		n := int64(0)
		for _, e := range files[file] {
			size := int64(1)
			for _, d := range e.Shape {
				size *= int64(d)
			}
			if e.DType == "F16" {
				size *= 2
			}
			n += size
		}
		values[key] = n
	}
	if o.Joint {
		values["centroids"] = o.Centroids
	}
	// what the factors leave, averaged over layers
	mean := make([]float64, len(left[0]))
	for _, x := range left {
		for i, v := range x {
			mean[i] += float64(v) / float64(len(left))
		}
	}
	values["left"] = mean
	return values, nil
}
