package moments

import (
	"context"
	"io"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
)

// merge adds the shards' sums up. They are multiples of one grid, so the order makes no difference.
func merge(ctx context.Context, cfg *checkpoint.Config, dir string, shards []stage.Part, p *stage.Progress) (map[string]any, error) {
	var sum *calib.MomentsMeta
	var files []*tensors.File
	windows := 0
	for _, s := range shards {
		m, err := calib.OpenMoments(s.Dir, cfg)
		if err != nil {
			return nil, err
		}
		m.Close()
		if sum == nil {
			meta := m.MomentsMeta
			sum = &meta
		} else {
			sum.Tokens += m.Tokens
		}
		windows += s.Int("windows")
		f, err := tensors.Open(filepath.Join(s.Dir, calib.MomentsFile))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append(files, f)
	}
	if err := format.CheckSpace(dir, fileBytes(sum)); err != nil {
		return nil, err
	}
	p.Start("merge", fileBytes(sum), "B")
	var entries []tensors.Entry
	for _, t := range tensorsOf(sum) {
		entries = append(entries, tensors.Entry{Name: t.name, DType: "F64", Shape: t.shape, Write: func(w io.Writer) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := 1
			for _, d := range t.shape {
				n *= d
			}
			dst, one := make([]float64, n), make([]float64, n)
			for _, f := range files {
				if err := calib.RawF64(f, t.name, one); err != nil {
					return err
				}
				f.Release(t.name)
				for i, v := range one {
					dst[i] += v
				}
			}
			p.Add(int64(8 * n))
			return calib.F64Entry(t.name, t.shape, dst).Write(w)
		}})
	}
	if err := tensors.Write(filepath.Join(dir, calib.MomentsFile), entries, nil); err != nil {
		return nil, err
	}
	p.Done()
	return finish(dir, sum, windows, cfg)
}
