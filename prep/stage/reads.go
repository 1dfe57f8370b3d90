package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
)

// sound holds the stages that a stage is about to read against their records, and gives each one's digest: their
// outputs are the bytes that they made, and what they read themselves is what lies there now. Stages run one by one
// could otherwise pass on damage, or mix an old clustering with a new capture.
func (e *Env) sound(ctx context.Context, reads []string, p *Progress) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range reads {
		dir := filepath.Join(e.Work, name)
		rec := readRecord(dir)
		if rec == nil {
			return nil, e.notRun(name)
		}
		if err := e.intact(ctx, dir, rec, p); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, format.Hint(format.Corruptf("%s: %w", dir, err), "run npprep "+name+" again, or npprep prepare")
		}
		for _, r := range slices.Sorted(maps.Keys(rec.Reads)) {
			now := readRecord(filepath.Join(e.Work, r))
			if now == nil || digest(now) != rec.Reads[r] {
				return nil, format.Hint(format.Inputf("%s: stage %s was made from another %s than is there now", e.Work, name, r),
					"run npprep "+name+" again, or npprep prepare")
			}
		}
		out[name] = digest(rec)
	}
	return out, nil
}

// Sound refuses stages whose outputs are not the bytes that they made, or that were made from others than are there.
func (e *Env) Sound(ctx context.Context, stages ...string) error {
	p := newProgress(e, "checking")
	defer p.Done()
	_, err := e.sound(ctx, stages, p)
	return err
}

// MadeFrom refuses a finished stage that did not have all these files' content among its inputs.
func (e *Env) MadeFrom(ctx context.Context, stage string, files ...string) error {
	rec := readRecord(filepath.Join(e.Work, stage))
	if rec == nil {
		return e.notRun(stage)
	}
	for _, f := range files {
		h, err := e.FileHash(ctx, f)
		if err != nil {
			return err
		}
		if !slices.Contains(rec.Inputs, h) {
			return format.Hint(format.Inputf("%s: stage %s was not made from %s as it is now", e.Work, stage, f),
				"run npprep "+stage+" again, or npprep prepare")
		}
	}
	return nil
}

func (e *Env) notRun(stage string) error {
	return format.Hint(format.Inputf("%s: stage %s has not been run here", e.Work, stage), "run npprep "+stage+" first, or npprep prepare")
}

// digest is a hash of a finished stage's outputs.
func digest(rec *record) string {
	h := sha256.New()
	for _, o := range rec.Outputs {
		fmt.Fprintf(h, "%s %s\n", o.SHA256, o.Name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// intact says which recorded output is not what it was, or nil.
func (e *Env) intact(ctx context.Context, dir string, rec *record, p *Progress) error {
	var total int64
	for _, o := range rec.Outputs {
		total += o.Size
	}
	p.Start("checking outputs", total, "B")
	defer p.Done()
	for _, o := range rec.Outputs {
		if !filepath.IsLocal(o.Name) {
			return fmt.Errorf("output name %q", o.Name)
		}
		path := filepath.Join(dir, o.Name)
		f, size, err := format.OpenRegular(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("output %s is missing", o.Name)
		}
		if err != nil {
			return err
		}
		f.Close()
		if size != o.Size {
			return fmt.Errorf("output %s has %d bytes, recorded are %d", o.Name, size, o.Size)
		}
		h, err := e.fileHash(ctx, path, p)
		if err != nil {
			return err
		}
		if h != o.SHA256 {
			return fmt.Errorf("output %s does not have its recorded checksum", o.Name)
		}
	}
	return nil
}
