package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/runtime/predictor"
)

// Table is the clustering of one layer and projection.
type Table struct {
	K         int
	Centroids []uint64 // (K, W) majority masks
	IDs       []int32  // (T) each token's nearest centroid, ties to the lower id
	Counts    []int32  // (K, M) members that have the neuron's bit
}

// TablePath is the file of a table in the cluster stage's folder.
func TablePath(dir string, proj, layer int) string {
	return filepath.Join(dir, predictor.TableName(proj, layer)+".safetensors")
}

// WriteTable writes a table of masks over m neurons.
func WriteTable(path string, t *Table, m int) error {
	return tensors.Write(path, []tensors.Entry{
		tensors.U64Entry("centroids", []int{t.K, predictor.Words(m)}, t.Centroids),
		tensors.I32Entry("ids", []int{len(t.IDs)}, t.IDs),
		tensors.I32Entry("counts", []int{t.K, m}, t.Counts),
	}, nil)
}

// TableReader reads a table member by member.
type TableReader struct {
	K int

	f    *tensors.File
	m, n int
}

// OpenTable opens a table over m neurons and tokens tokens.
func OpenTable(path string, m, tokens int) (*TableReader, error) {
	f, err := tensors.Open(path)
	if err != nil {
		return nil, format.Hint(err, "run npprep cluster with the same --work")
	}
	in, ok := f.Info("centroids")
	if !ok || len(in.Shape) != 2 || in.Shape[0] < 1 || in.Shape[0] > predictor.MaxCentroids {
		f.Close()
		return nil, format.Inputf("%s: tensor centroids is missing or not a matrix", path)
	}
	t := &TableReader{K: in.Shape[0], f: f, m: m, n: tokens}
	err = want(f, "centroids", "U64", t.K, predictor.Words(m))
	if err == nil {
		err = want(f, "counts", "I32", t.K, m)
	}
	if ids, ok := f.Info("ids"); err == nil && (!ok || ids.DType != "I32" || len(ids.Shape) != 1 || ids.Shape[0] != tokens) {
		err = format.Inputf("%s: tensor ids is missing or not I32 (%d)", path, tokens)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

// Close unmaps the file.
func (t *TableReader) Close() { t.f.Close() }

// Centroids are the majority masks (K, W).
func (t *TableReader) Centroids() ([]uint64, error) { return t.f.U64("centroids") }

// Counts are the members' bit counts (K, M).
func (t *TableReader) Counts() ([]int32, error) { return t.f.I32("counts") }

// IDs are the tokens' centroids (T), each within 0..K-1.
func (t *TableReader) IDs() ([]int32, error) {
	ids, err := t.f.I32("ids")
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= t.K {
			return nil, format.Corruptf("%s: tensor ids: token %d has centroid %d of %d", t.f.Path(), i, id, t.K)
		}
	}
	return ids, nil
}

// Digest is one SHA-256 over a stage's recorded outputs (name → SHA-256), for the keys of the stages after it.
func Digest(outputs map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		fmt.Fprintf(h, "%s %s\n", outputs[name], name)
	}
	return hex.EncodeToString(h.Sum(nil))
}
