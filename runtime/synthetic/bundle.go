package synthetic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// version of what Ensure writes; a bundle of another one is written anew.
const version = "1"

// ParamShape is the manifest parameter that tells a synthetic bundle from a real one.
const ParamShape = "synthetic"

// pieceBytes is about how much of rows.np is made at a time.
const pieceBytes = 4 << 20

// Ensure makes sure that a bundle of the shape with this seed lies at dir/NAME and returns its path. One that is there
// with the same parameters is reused; another synthetic one is replaced; anything else is refused. A bundle that is being
// written has another name until it is whole. progress, if any, is told the bytes of rows done and in all.
func Ensure(ctx context.Context, dir string, s Shape, seed uint64, tool string, progress func(done, total int64)) (path string, made bool, err error) {
	path = filepath.Join(dir, s.Name)
	c, cfg, err := s.config()
	if err != nil {
		return path, false, err
	}
	params := map[string]string{ParamShape: s.Name, "seed": strconv.FormatUint(seed, 10), "synthetic_version": version}
	g := bundle.NewGeometry(c.Hidden, c.Intermediate, c.Layers, 0)
	if _, err := os.Stat(path); err == nil {
		// What cannot be opened is left to the writer, which replaces damaged bundles and refuses what is none.
		if b, err := bundle.Open(path); err == nil {
			if b.Manifest.Params[ParamShape] == "" {
				return path, false, format.Hint(format.Inputf("%s: a bundle that is not synthetic", path), "choose another --dir")
			}
			if maps.Equal(b.Manifest.Params, params) && b.Manifest.Rows == g && b.Manifest.Sparse != nil && b.Manifest.Sparse.KMax == s.KMax {
				return path, false, nil
			}
		}
	}
	w, err := bundle.NewWriter(path)
	if err != nil {
		return path, false, err
	}
	defer w.Close()
	// The writer's lock on the place makes this folder ours; a killed run may have left one.
	work := filepath.Join(dir, "."+s.Name+".rows")
	if err := os.RemoveAll(work); err != nil {
		return path, false, format.IOf("%w", err)
	}
	if err := CheckRoom(dir, s); err != nil {
		return path, false, err
	}
	if err := os.Mkdir(work, 0o777); err != nil {
		return path, false, format.IOf("%w", err)
	}
	defer os.RemoveAll(work)
	m := &bundle.Manifest{Format: bundle.Format{Reader: bundle.ReaderVersion, Writer: bundle.WriterVersion}, Tool: tool, Model: *c, Rows: g, Params: params,
		Sparse: &bundle.Sparse{KMax: s.KMax, Sparsity: 1 - float64(s.KMax)/float64(c.Intermediate), Centroids: s.centroids(),
			Selectors: []string{bundle.SelectorPaper, bundle.SelectorStatic}, TokenDensity: 0.4, CentroidDensity: s.centroidDensity(),
			MeanIntersection: float64(s.KMax), DefaultDense: c.Layers - 1, PredictorDim: s.predictorDim()}}
	sum, err := writeRows(ctx, filepath.Join(work, bundle.MemberRows), g, seed, m, progress)
	if err != nil {
		return path, false, err
	}
	tok, err := s.tokenizerJSON()
	if err != nil {
		return path, false, err
	}
	for _, x := range []struct {
		name    string
		entries []tensors.Entry
	}{{bundle.MemberResident, residentEntries(c, seed)}, {bundle.MemberCentroids, centroidEntries(s, seed)}, {bundle.MemberPredictor, predictorEntries(s, seed)}} {
		if err := ctx.Err(); err != nil {
			return path, false, err
		}
		p := filepath.Join(work, x.name)
		if err := tensors.Write(p, x.entries, map[string]string{ParamShape: s.Name}); err != nil {
			return path, false, err
		}
		if err := w.Link(ctx, x.name, p, "", nil); err != nil {
			return path, false, err
		}
	}
	if err := w.Link(ctx, bundle.MemberRows, filepath.Join(work, bundle.MemberRows), sum, nil); err != nil {
		return path, false, err
	}
	if err := errors.Join(w.Put(bundle.MemberConfig, cfg), w.Put(bundle.MemberTokenizer, tok)); err != nil {
		return path, false, err
	}
	return path, true, w.Publish(ctx, m)
}

// Size is about what a bundle of the shape takes on disk.
func Size(s Shape) (int64, error) {
	c, _, err := s.config()
	if err != nil {
		return 0, err
	}
	g := bundle.NewGeometry(c.Hidden, c.Intermediate, c.Layers, 0)
	small := int64(64 << 20)
	for _, e := range append(centroidEntries(s, 0), predictorEntries(s, 0)...) {
		n := int64(map[string]int{"U64": 8, "F32": 4, "I32": 4, "F16": 2}[e.DType])
		for _, d := range e.Shape {
			n *= int64(d)
		}
		small += n
	}
	return g.FileSize() + model.ResidentBytes(c) + small, nil
}

// CheckRoom refuses when the file system of dir has no room for the shape.
func CheckRoom(dir string, s Shape) error {
	need, err := Size(s)
	if err != nil {
		return err
	}
	free, err := format.FreeSpace(dir)
	if err != nil {
		return err
	}
	if free < need {
		return format.Hint(format.IOf("%s: no space: a synthetic bundle of the shape %s wants %s, %s are available", dir, s.Name, format.IEC(need), format.IEC(free)),
			"free some space, or name a folder on a larger file system with --dir")
	}
	return nil
}

// writeRows writes rows.np and returns its sha256, which is computed while the next piece is made.
func writeRows(ctx context.Context, path string, g bundle.Geometry, seed uint64, m *bundle.Manifest, progress func(done, total int64)) (sum string, err error) {
	w, err := bundle.OpenRows(path, g)
	if err != nil {
		return "", err
	}
	defer w.Close()
	const buffers = 3
	per := max(1, pieceBytes/g.Stride)
	type piece struct {
		bytes []byte
		buf   []uint64 // to be used again, or nil
	}
	free, full := make(chan []uint64, buffers), make(chan piece, buffers)
	for range buffers {
		free <- make([]uint64, per*g.Stride/8)
	}
	hash := sha256.New()
	hash.Write(bundle.Header{ReadVersion: bundle.ReaderVersion, WriteVersion: bundle.WriterVersion, Geometry: g}.Encode())
	hash.Write(make([]byte, g.DataOffset-bundle.HeaderSize))
	hashed := make(chan struct{})
	go func() {
		defer close(hashed)
		for p := range full {
			hash.Write(p.bytes)
			if p.buf != nil {
				free <- p.buf
			}
		}
	}()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			close(full)
			<-hashed
		}
	}
	defer stop()
	in, down := 1/math.Sqrt(float64(g.Hidden)), 1/math.Sqrt(float64(g.Neurons))
	words, stride := g.Hidden/4, g.Stride/8
	for l := range g.Layers {
		src := newSource(seed, streamRows+uint64(l))
		if err := w.BeginLayer(l); err != nil {
			return "", err
		}
		for first := 0; first < g.Neurons; first += per {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			n := min(per, g.Neurons-first)
			buf := <-free
			for i := range n {
				rec := buf[i*stride:]
				src.halves(rec[:2*words], in)
				src.halves(rec[2*words:3*words], down)
			}
			recs := kernels.U64Bytes(buf)[:n*g.Stride]
			if err := w.PutRecords(recs); err != nil {
				return "", err
			}
			full <- piece{recs, buf}
			if progress != nil {
				progress(int64(l*g.Neurons+first+n)*int64(g.Stride), int64(g.Layers)*g.LayerBytes())
			}
		}
		if _, err := w.EndLayer(); err != nil {
			return "", err
		}
		if pad := g.LayerStride - g.LayerBytes(); pad > 0 {
			full <- piece{bytes: make([]byte, pad)}
		}
	}
	stop()
	if m.LayerCRC, err = w.Finish(""); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
