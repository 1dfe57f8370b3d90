package repack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/prep/stage"
)

// Name of the stage and of its folder.
const Name = "repack"

const version = 1

// LayersFile is the output that says how the rows lie and what their checksums are.
const LayersFile = "layers.json"

// Files of a run that is not finished.
const (
	partialFile  = ".rows.np.partial"
	residentUnit = ".resident.json"
)

func layerUnit(l int) string { return fmt.Sprintf(".layer-%04d.json", l) }

// Options of the stage.
type Options struct {
	Checkpoint  *checkpoint.Checkpoint
	RecordAlign int // 0: trailers on multiples of 512; 4096: whole pages, checksums in rows.crc
}

// Layers is layers.json.
type Layers struct {
	Rows      bundle.Geometry `json:"rows"`
	CRC       []uint32        `json:"crc32c"`    // of each layer's block
	Underflow []int64         `json:"underflow"` // values of each layer that float16 holds less exactly
}

// unit is the note that a part is finished. It is trusted only after its checksum was found again.
type unit struct {
	CRC       uint32 `json:"crc32c,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Underflow int64  `json:"underflow"`
}

// Run writes Work/repack: rows.np, rows.crc where records have no trailer, resident.safetensors, layers.json.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	c := o.Checkpoint
	// whatever the geometry of the file, it is part of what decides whether the stage runs
	g := bundle.NewGeometry(c.Config.Hidden, c.Config.Intermediate, c.Config.Layers, o.RecordAlign)
	if err := g.Check(c.Dir); err != nil {
		return stage.Report{}, err
	}
	if err := checkMemory(e.Memory, c, g); err != nil {
		return stage.Report{}, err
	}
	spec := stage.Spec{Name: Name, Version: version, Inputs: c.Files(), Params: map[string]any{"record_align": o.RecordAlign, "model": c.Config}}
	return stage.Run(ctx, e, spec, func(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
		r := &repacker{ctx: ctx, e: e, c: c, g: g, dir: dir, p: p}
		values, err := r.run()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			// a full disk gets its space back; what was done would not fit next time either
			r.removePartial()
		}
		return values, err
	})
}

type repacker struct {
	ctx context.Context
	e   *stage.Env
	c   *checkpoint.Checkpoint
	g   bundle.Geometry
	dir string
	p   *stage.Progress

	strip   []byte // records being put together
	resumed int    // layers found finished
}

func (r *repacker) path(name string) string { return filepath.Join(r.dir, name) }

func (r *repacker) run() (map[string]any, error) {
	resident, err := r.resident()
	if err != nil {
		return nil, err
	}
	layers, err := r.rows()
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(layers, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := writeFile(r.path(LayersFile), append(b, '\n')); err != nil {
		return nil, err
	}
	var under int64
	for _, n := range layers.Underflow {
		under += n
	}
	return map[string]any{
		"layers": r.g.Layers, "records": r.g.Layers * r.g.Neurons, "stride": r.g.Stride, "rows_bytes": r.g.FileSize(),
		"resumed_layers": r.resumed, "underflow": under + resident.Underflow,
	}, nil
}

// removePartial gives the space of an unfinished run back.
func (r *repacker) removePartial() {
	os.Remove(r.path(partialFile))
	for l := range r.g.Layers {
		os.Remove(r.path(layerUnit(l)))
	}
}

// resident writes resident.safetensors unless an earlier run did.
func (r *repacker) resident() (unit, error) {
	path := r.path(bundle.MemberResident)
	var u unit
	if r.readUnit(residentUnit, &u) {
		if h, err := r.e.FileHash(r.ctx, path); err == nil && h == u.SHA256 {
			return u, nil
		}
	}
	names := residentNames(r.c.Config)
	var total int64
	for _, n := range names {
		info, _, err := r.c.Tensor(n)
		if err != nil {
			return u, err
		}
		total += info.End - info.Begin
	}
	r.p.Start("resident tensors", total, "B")
	defer r.p.Done()
	u = unit{}
	var entries []tensors.Entry
	for _, n := range names {
		ent, err := r.entry(n, &u.Underflow)
		if err != nil {
			return u, err
		}
		entries = append(entries, ent)
	}
	if err := tensors.Write(path, entries, nil); err != nil {
		return u, err
	}
	var err error
	if u.SHA256, err = r.e.FileHash(r.ctx, path); err != nil {
		return u, err
	}
	return u, r.writeUnit(residentUnit, u)
}

// rows writes rows.np, layer by layer.
func (r *repacker) rows() (*Layers, error) {
	final, partial := r.path(bundle.MemberRows), r.path(partialFile)
	// a run killed between the rename and the stage's record left the file finished
	if _, err := os.Stat(final); err == nil {
		if err := os.Rename(final, partial); err != nil {
			return nil, format.IOf("%w", err)
		}
	}
	w, err := bundle.OpenRows(partial, r.g)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	out := &Layers{Rows: r.g, Underflow: make([]int64, r.g.Layers)}
	r.p.Start("layers", int64(r.g.Layers), "layers")
	defer r.p.Done()
	for l := range r.g.Layers {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		var u unit
		ok := r.readUnit(layerUnit(l), &u)
		if ok {
			if ok, err = w.Resume(l, u.CRC); err != nil {
				return nil, err
			}
		}
		if ok {
			r.resumed++
		} else if u, err = r.layer(w, l); err != nil {
			return nil, err
		}
		out.Underflow[l] = u.Underflow
		r.p.Add(1)
	}
	if out.CRC, err = w.Finish(r.path(bundle.MemberRowsCRC)); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, final); err != nil {
		return nil, format.IOf("%w", err)
	}
	return out, format.SyncDir(r.dir)
}

func (r *repacker) readUnit(name string, u *unit) bool {
	b, err := format.ReadFile(r.path(name), 1<<16)
	return err == nil && json.Unmarshal(b, u) == nil
}

func (r *repacker) writeUnit(name string, u unit) error {
	b, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return writeFile(r.path(name), b)
}

func writeFile(path string, data []byte) error {
	return format.WriteFileAtomic(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReadLayers reads layers.json.
func ReadLayers(dir string) (*Layers, error) {
	path := filepath.Join(dir, LayersFile)
	b, err := format.ReadFile(path, 1<<20)
	if err != nil {
		return nil, err
	}
	l := new(Layers)
	if err := json.Unmarshal(b, l); err != nil {
		return nil, format.Corruptf("%s: %v", path, err)
	}
	return l, nil
}

// residentNames lists the tensors outside the MLPs, in the order of the forward pass.
func residentNames(c *checkpoint.Config) []string {
	names := []string{checkpoint.EmbeddingName}
	for l := range c.Layers {
		pre := fmt.Sprintf("model.layers.%d.", l)
		names = append(names, pre+"input_layernorm.weight")
		for _, x := range []string{"q", "k", "v", "o"} {
			names = append(names, pre+"self_attn."+x+"_proj.weight")
			if c.QKVBias && x != "o" {
				names = append(names, pre+"self_attn."+x+"_proj.bias")
			}
		}
		names = append(names, pre+"post_attention_layernorm.weight")
	}
	names = append(names, "model.norm.weight")
	if !c.Tied {
		names = append(names, checkpoint.LMHeadName)
	}
	return slices.Clip(names)
}
