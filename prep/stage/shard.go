package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"neuroprefetcher/format"
)

// MaxShards bounds into how many shards a stage's work is cut.
const MaxShards = 9999

// Shard is part I of N of a stage's work, counted from 1. The zero value is all of it.
//
// A shard runs as a stage of its own, in Work/<name>.<I>of<N>. Run without a shard, the stage puts the shards that it
// finds in the work folder together instead of doing the work itself, if it has a Merge.
type Shard struct{ I, N int }

// ParseShard reads "2/3".
func ParseShard(s string) (Shard, error) {
	a, b, ok := strings.Cut(s, "/")
	i, errI := strconv.Atoi(a)
	n, errN := strconv.Atoi(b)
	if !ok || errI != nil || errN != nil || n < 1 || n > MaxShards || i < 1 || i > n {
		return Shard{}, fmt.Errorf("shard %q: want I/N, part I of N, such as 2/3", s)
	}
	return Shard{i, n}, nil
}

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.I, s.N) }

// All reports whether s is no part but the whole.
func (s Shard) All() bool { return s.N == 0 }

// Cut is the part of units [0, units) that s is. It refuses more shards than units.
func (s Shard) Cut(units int, what string) (lo, hi int, err error) {
	if s.All() {
		return 0, units, nil
	}
	if s.N > units {
		return 0, 0, format.Inputf("%d shards of %d %s: want at most as many", s.N, units, what)
	}
	return (s.I - 1) * units / s.N, s.I * units / s.N, nil
}

// Part is a finished shard.
type Part struct {
	Dir    string
	Values map[string]any // its report's, as JSON decodes them
}

// Int is a value that was recorded as a whole number.
func (p Part) Int(key string) int {
	v, _ := p.Values[key].(float64)
	return int(v)
}

// folder is the stage's folder in the work folder.
func (s *Spec) folder() string {
	if s.Shard.All() {
		return s.Name
	}
	return fmt.Sprintf("%s.%dof%d", s.Name, s.Shard.I, s.Shard.N)
}

// title is what a report calls the stage.
func (s *Spec) title() string {
	if s.Shard.All() {
		return s.Name
	}
	return s.Name + " " + s.Shard.String()
}

// shards finds the finished shards of a stage, in order; none if there are none. whole is the record that the stage's
// run would have. It refuses shards that do not belong together, or of which some are missing.
func (e *Env) shards(ctx context.Context, s Spec, whole *record, p *Progress) ([]Part, error) {
	entries, err := os.ReadDir(e.Work)
	if err != nil {
		return nil, format.IOf("%w", err)
	}
	again := func(err error) error {
		return format.Hint(err, "run the shards again with one set of flags, or remove their folders to do all of it here")
	}
	var parts []Part
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), s.Name+".")
		a, b, _ := strings.Cut(rest, "of")
		shard, err := ParseShard(a + "/" + b)
		if !ours || err != nil {
			continue
		}
		dir := filepath.Join(e.Work, entry.Name())
		if parts == nil {
			parts = make([]Part, shard.N)
		}
		if shard.N != len(parts) {
			return nil, again(format.Inputf("%s: shards of %d beside shards of %d", dir, shard.N, len(parts)))
		}
		rec := readRecord(dir)
		if rec == nil {
			continue // not done: named below
		}
		switch {
		case rec.Name != s.Name || rec.Shard == nil || *rec.Shard != shard:
			return nil, again(format.Corruptf("%s: the record is of stage %s, shard %v", dir, rec.Name, rec.Shard))
		case rec.Version != s.Version:
			return nil, again(format.Inputf("%s: made by another version of npprep", dir))
		case !sameParams(rec, whole):
			return nil, again(format.Inputf("%s: made with other parameters: %s, not %s", dir, compact(rec.Params), compact(whole.Params)))
		case !slices.Equal(rec.Inputs, whole.Inputs):
			return nil, again(format.Inputf("%s: made from another checkpoint, text or stage before it", dir))
		}
		if err := e.intact(ctx, dir, rec, p); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, format.Hint(format.Corruptf("%s: %w", dir, err), "run that shard again")
		}
		parts[shard.I-1] = Part{Dir: dir, Values: rec.Report.Values}
	}
	var missing []string
	for i, part := range parts {
		if part.Dir == "" {
			missing = append(missing, Shard{i + 1, len(parts)}.String())
		}
	}
	if len(missing) > 0 {
		return nil, format.Hint(format.Inputf("%s: of stage %s, shard %s is missing or not finished", e.Work, s.Name, strings.Join(missing, ", ")),
			"run npprep "+s.Name+" --shard "+missing[0]+", or remove the shards' folders to do all of it here")
	}
	return parts, nil
}

// sameParams compares what JSON has been indented in one and not in the other.
func sameParams(a, b *record) bool { return compact(a.Params) == compact(b.Params) }

func compact(params []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, params); err != nil {
		return string(params)
	}
	return b.String()
}
