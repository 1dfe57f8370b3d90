package calib

import (
	"fmt"
	"path/filepath"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
)

// The vocab stage's folder, and the file in it that says which joint centroid the tokens of some of the capture's
// windows have: joint.l, I32, for the layers from its dense prefix on. Position 0 of a window has none.
const (
	VocabName    = "vocab"
	JointIDsFile = "ids.safetensors"
)

func JointIDsName(l int) string { return fmt.Sprintf("joint.%d", l) }

// JointMeta is the metadata of JointIDsFile.
func JointMeta(tokens, dense, centroids int) map[string]string {
	return map[string]string{"tokens": strconv.Itoa(tokens), "dense": strconv.Itoa(dense), "centroids": strconv.Itoa(centroids)}
}

// JointIDs is the content of JointIDsFile.
type JointIDs struct {
	First   int // layer of IDs[0]
	K       int
	Windows []Window
	IDs     [][]int32 // per layer: one for each token of the windows
}

// Spread are windows of about that many tokens, spread over the whole capture; a last one of a single token, which would
// add nothing, is left out.
func (c *Capture) Spread(tokens int) []Window {
	all := c.Windows()
	if n := len(all) - 1; n > 0 && all[n].Len < 2 {
		all = all[:n]
	}
	return Spread(all, max(1, (min(tokens, c.Tokens)+c.Window-1)/c.Window))
}

// OpenJointIDs reads the vocab stage's ids of a capture in the same work folder.
func OpenJointIDs(work string, c *Capture) (*JointIDs, error) {
	path := filepath.Join(work, VocabName, JointIDsFile)
	f, err := tensors.Open(path)
	if err != nil {
		return nil, format.Hint(err, "run npprep vocab with the same --work and --selectors")
	}
	defer f.Close()
	var v [3]int
	for i, key := range []string{"tokens", "dense", "centroids"} {
		if v[i], err = strconv.Atoi(f.Metadata()[key]); err != nil || v[i] < 1 {
			return nil, format.Corruptf("%s: metadata %s is %.20q", path, key, f.Metadata()[key])
		}
	}
	x := &JointIDs{First: v[1], K: v[2], Windows: c.Spread(v[0])}
	n := Tokens(x.Windows)
	for l := x.First; l < c.Layers; l++ {
		ids, err := f.I32(JointIDsName(l))
		if err != nil {
			return nil, err
		}
		if len(ids) != n {
			return nil, format.Inputf("%s: tensor %s has %d ids, the windows have %d tokens: run npprep vocab again", path, JointIDsName(l), len(ids), n)
		}
		for i, id := range ids {
			if id < 0 || int(id) >= x.K {
				return nil, format.Corruptf("%s: tensor %s: token %d has centroid %d of %d", path, JointIDsName(l), i, id, x.K)
			}
		}
		x.IDs = append(x.IDs, ids)
	}
	if len(x.IDs) == 0 {
		return nil, format.Corruptf("%s: no layer has ids", path)
	}
	return x, nil
}
