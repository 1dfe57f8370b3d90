package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"neuroprefetcher/format"
	"neuroprefetcher/kernels"
)

const (
	recordFile = "stage.json" // in a stage's folder: what makes it done
	keyFile    = ".key"       // in a stage's folder while it is not done: what the unit files belong to
	lockFile   = ".lock"      // in the work folder
	hashFile   = "hashes.json"
	reportFile = "report.json"

	maxRecord = 64 << 20 // bytes of any of these files
)

// Env is what a run of stages shares. One goroutine at a time uses it.
type Env struct {
	Work    string // work folder; made when missing
	Threads int    // 0: all
	Memory  int64  // bytes the process may use; 0: no limit stated
	Seed    uint64
	Quiet   bool      // no progress and no notes
	JSON    bool      // plain progress lines even on a terminal
	Log     io.Writer // progress and notes; nil: none
	Pool    *kernels.Pool

	mu      sync.Mutex
	lock    *flock.Flock
	holders int
	hashes  *hashCache
	reports []Report
}

// Spec names a stage and everything its outputs depend on.
type Spec struct {
	Name    string
	Version int      // raise when the same inputs give other bytes
	Inputs  []string // files, or the SHA-256 of something (64 hex digits); the order counts
	Params  any      // encoded as JSON
	// Reads are the stages of the same work folder whose outputs this one reads. Before it runs, they are held against
	// their records. They are no part of the key: their hashes belong into Inputs.
	Reads []string
	// Check, if set, is a further condition for being up to date, such as an output outside the work folder. It
	// gets the values of the recorded run.
	Check func(ctx context.Context, values map[string]any) error
	Shard Shard // the zero value: all of the work
	// Merge, if set, does the work of a run without a shard by putting the shards together that are in the work folder.
	Merge func(ctx context.Context, dir string, shards []Part, p *Progress) (map[string]any, error)
}

// Report is what a stage tells at its end.
type Report struct {
	Stage   string         `json:"stage"`
	Seconds float64        `json:"seconds"`
	PeakRSS int64          `json:"peak_rss"` // bytes; 0 where the kernel does not tell
	Skipped bool           `json:"skipped"`  // was up to date; Seconds and PeakRSS are of the recorded run
	Values  map[string]any `json:"values,omitempty"`
	// PeakWhole: the peak could not be reset before the stage, so it is the process's so far.
	PeakWhole bool `json:"peak_is_whole_process,omitempty"`
}

// record is stage.json.
type record struct {
	Sum     string          `json:"sha256,omitempty"` // of the record itself
	Key     string          `json:"key"`
	Name    string          `json:"name"`
	Version int             `json:"version"`
	Shard   *Shard          `json:"shard,omitempty"`
	Params  json.RawMessage `json:"params"`
	Inputs  []string        `json:"inputs"` // SHA-256
	// Reads is, for each stage that was read, the digest of its outputs then.
	Reads   map[string]string `json:"reads,omitempty"`
	Outputs []output          `json:"outputs"`
	Report  Report            `json:"report"`
}

type output struct {
	Name   string `json:"name"` // relative to the stage's folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Run runs a stage in e.Work/s.Name, or tells that it is up to date. f gets the folder, in which it may find
// and leave finished unit files, and returns the values for the report; all its outputs are files there.
// An error of f leaves the folder as it is, for the next run to go on from.
func Run(ctx context.Context, e *Env, s Spec, f func(ctx context.Context, dir string, p *Progress) (map[string]any, error)) (Report, error) {
	unlock, err := e.lockFor(&s)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	dir := filepath.Join(e.Work, s.folder())
	p := newProgress(e, s.title())
	defer p.Done()
	rec, err := e.key(ctx, s, p)
	if err != nil {
		return Report{}, err
	}
	if old := readRecord(dir); old != nil && old.Key == rec.Key {
		err := e.upToDate(ctx, dir, old, s, p)
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
		if err == nil {
			r := old.Report
			r.Skipped = true
			return r, e.finish(r)
		}
		e.Note("%s: runs again: %v", s.Name, err)
	}
	if s.Merge != nil && s.Shard.All() {
		shards, err := e.shards(ctx, s, rec, p)
		if err != nil {
			return Report{}, named(s.Name, err)
		}
		if shards != nil {
			f = func(ctx context.Context, dir string, p *Progress) (map[string]any, error) {
				return s.Merge(ctx, dir, shards, p)
			}
		}
	}
	if rec.Reads, err = e.sound(ctx, s.Reads, p); err != nil {
		return Report{}, err
	}
	if err := enter(dir, rec.Key); err != nil {
		return Report{}, err
	}
	reset := resetPeak()
	start := time.Now()
	values, err := f(ctx, dir, p)
	p.Done()
	if err == nil {
		err = ctx.Err() // a stage that was told to stop is not done, whatever it believes
	}
	if err != nil {
		e.saveHashes()
		if errors.Is(err, context.Canceled) {
			return Report{}, err
		}
		return Report{}, named(s.Name, err)
	}
	r := Report{Stage: s.title(), Values: values, PeakWhole: !reset}
	if rec.Outputs, err = e.outputs(ctx, dir, p); err != nil {
		return Report{}, err
	}
	r.Seconds, r.PeakRSS = time.Since(start).Seconds(), peakRSS()
	rec.Report = r
	if err := leave(dir, rec); err != nil {
		return Report{}, err
	}
	return r, e.finish(r)
}

// named puts the stage's name before an error, keeping its kinds and hint.
func named(stage string, err error) error {
	if strings.HasPrefix(err.Error(), stage+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", stage, err)
}

// key hashes everything the stage depends on.
func (e *Env) key(ctx context.Context, s Spec, p *Progress) (*record, error) {
	params, err := json.Marshal(s.Params)
	if err != nil {
		return nil, err
	}
	rec := &record{Name: s.Name, Version: s.Version, Params: params}
	if !s.Shard.All() {
		rec.Shard = &s.Shard
	}
	var total int64
	for _, in := range s.Inputs {
		if !isHash(in) {
			if st, err := os.Stat(in); err == nil {
				total += st.Size()
			}
		}
	}
	p.Start("hashing inputs", total, "B")
	for _, in := range s.Inputs {
		h := in
		if !isHash(in) {
			if h, err = e.fileHash(ctx, in, p); err != nil {
				return nil, err
			}
		}
		rec.Inputs = append(rec.Inputs, h)
	}
	p.Done()
	parts := []any{rec.Name, rec.Version, rec.Params, rec.Inputs}
	if rec.Shard != nil {
		parts = append(parts, rec.Shard)
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	rec.Key = hex.EncodeToString(sum[:])
	return rec, nil
}

func isHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

// readRecord returns nil for anything that is not a whole record.
func readRecord(dir string) *record {
	b, err := format.ReadFile(filepath.Join(dir, recordFile), maxRecord)
	if err != nil {
		return nil
	}
	rec := new(record)
	if json.Unmarshal(b, rec) != nil {
		return nil
	}
	if rec.Sum != "" && rec.Sum != sumRecord(b, rec.Sum) { // records once had none
		return nil
	}
	return rec
}

// encode gives stage.json with its checksum.
func (r *record) encode() ([]byte, error) {
	r.Sum = strings.Repeat("0", 2*sha256.Size)
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	zeros := r.Sum
	r.Sum = sumRecord(b, zeros)
	return bytes.Replace(b, []byte(zeros), []byte(r.Sum), 1), nil
}

// sumRecord is the SHA-256 of a record with zeros in the place of its checksum, which comes first in it.
func sumRecord(b []byte, sum string) string {
	h := sha256.Sum256(bytes.Replace(b, []byte(sum), bytes.Repeat([]byte{'0'}, len(sum)), 1))
	return hex.EncodeToString(h[:])
}

// upToDate says why recorded outputs are not to be trusted, or nil.
func (e *Env) upToDate(ctx context.Context, dir string, rec *record, s Spec, p *Progress) error {
	if err := e.intact(ctx, dir, rec, p); err != nil {
		return err
	}
	if s.Check != nil {
		return s.Check(ctx, rec.Report.Values)
	}
	return nil
}

// enter makes the folder ready for a run with this key: units of the same key stay, all else goes.
func enter(dir, key string) error {
	if b, err := format.ReadFile(filepath.Join(dir, keyFile), maxRecord); err != nil || string(b) != key {
		if err := os.RemoveAll(dir); err != nil {
			return format.IOf("%s: empty the folder: %w", dir, err)
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return format.IOf("%s: %w", dir, err)
		}
		if err := writeFile(filepath.Join(dir, keyFile), []byte(key)); err != nil {
			return err
		}
	}
	// A record beside a key file is of a run that was killed while leaving; this run will write its own.
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return format.IOf("%w", err)
	}
	return format.SyncDir(dir)
}

// outputs lists what the stage made, in name order.
func (e *Env) outputs(ctx context.Context, dir string, p *Progress) ([]output, error) {
	var out []output
	var total int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return format.IOf("%w", err)
		}
		if path != dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return format.IOf("%w", err)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out = append(out, output{Name: rel, Size: st.Size()})
		total += st.Size()
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b output) int { return strings.Compare(a.Name, b.Name) })
	p.Start("hashing outputs", total, "B")
	defer p.Done()
	for i := range out {
		if out[i].SHA256, err = e.fileHash(ctx, filepath.Join(dir, out[i].Name), p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// leave writes the record, which makes the stage done, and removes its notes.
func leave(dir string, rec *record) error {
	b, err := rec.encode()
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, recordFile), b); err != nil {
		return err
	}
	ents, err := os.ReadDir(dir)
	if err != nil {
		return format.IOf("%w", err)
	}
	for _, d := range ents {
		// the key last: units without it would be removed, a key without units costs only time
		if strings.HasPrefix(d.Name(), ".") && d.Name() != keyFile {
			if err := os.RemoveAll(filepath.Join(dir, d.Name())); err != nil {
				return format.IOf("%w", err)
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return format.IOf("%w", err)
	}
	return nil
}

// finish notes a report and writes those of the whole run.
func (e *Env) finish(r Report) error {
	e.saveHashes()
	// a stage that runs twice in one preparation is told once, as it ended
	if i := slices.IndexFunc(e.reports, func(old Report) bool { return old.Stage == r.Stage }); i >= 0 {
		e.reports = slices.Delete(e.reports, i, i+1)
	}
	e.reports = append(e.reports, r)
	b, err := json.MarshalIndent(map[string]any{"stages": e.reports}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(e.Work, reportFile), append(b, '\n'))
}

// Reports are those of the stages run or skipped so far.
func (e *Env) Reports() []Report { return slices.Clone(e.reports) }

// Note tells the user something in a line, unless quiet.
func (e *Env) Note(f string, a ...any) {
	if e.Log != nil && !e.Quiet {
		e.mu.Lock()
		defer e.mu.Unlock()
		fmt.Fprintf(e.Log, f+"\n", a...)
	}
}

// Warn tells the user something in a line, even when quiet.
func (e *Env) Warn(f string, a ...any) {
	if e.Log != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		fmt.Fprintf(e.Log, "warning: "+f+"\n", a...)
	}
}

// Outputs gives the recorded outputs of a finished stage: name → SHA-256.
func (e *Env) Outputs(stage string) (map[string]string, error) {
	rec := readRecord(filepath.Join(e.Work, stage))
	if rec == nil {
		return nil, e.notRun(stage)
	}
	out := make(map[string]string, len(rec.Outputs))
	for _, o := range rec.Outputs {
		out[o.Name] = o.SHA256
	}
	return out, nil
}

// Values gives the recorded values of a finished stage, as JSON decodes them.
func (e *Env) Values(stage string) map[string]any {
	if rec := readRecord(filepath.Join(e.Work, stage)); rec != nil {
		return rec.Report.Values
	}
	return nil
}

func writeFile(path string, data []byte) error {
	return format.WriteFileAtomic(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
