package stage

import (
	"context"
	"io"

	"neuroprefetcher/kernels"
)

// Env is what a run of stages shares.
type Env struct {
	Work    string // work folder; made when missing
	Threads int    // 0: all
	Memory  int64  // bytes the process may use; 0: no limit stated
	Seed    uint64
	Quiet   bool
	JSON    bool
	Log     io.Writer // progress and notes; nil: none
	Pool    *kernels.Pool
}

// Spec names a stage and everything its outputs depend on.
type Spec struct {
	Name    string
	Version int      // raise when the same inputs give other bytes
	Inputs  []string // files, or the SHA-256 of something (64 hex digits); the order counts
	Params  any      // encoded as JSON
	// Check, if set, is a further condition for being up to date, such as an output outside the work folder.
	Check func(dir string, values map[string]any) error
}

// Report is what a stage tells at its end.
type Report struct {
	Stage   string         `json:"stage"`
	Seconds float64        `json:"seconds"`
	PeakRSS int64          `json:"peak_rss"` // bytes; see PeakWhole
	Skipped bool           `json:"skipped"`  // was up to date
	Values  map[string]any `json:"values,omitempty"`
	// PeakWhole: the kernel did not let the peak be reset, so it is the whole process's so far.
	PeakWhole bool `json:"peak_is_whole_process,omitempty"`
}

// Run runs a stage unless it is up to date.
func Run(ctx context.Context, e *Env, s Spec, f func(ctx context.Context, dir string, p *Progress) (map[string]any, error)) (Report, error) {
	return run(ctx, e, s, f)
}

// FileHash is the SHA-256 of a file's content, in hex.
func FileHash(path string) (string, error) { return fileHash(path) }
