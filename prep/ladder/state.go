package ladder

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/eval"
)

const (
	stateVersion = 2
	stateDir     = "eval"    // in the work folder
	maxState     = 256 << 20 // of one file
)

// state is what is known of one rung on one text or one set of items: a file of the work folder.
type state struct {
	Key      string           `json:"key"`
	Rung     Rung             `json:"rung"`
	Windows  []*tally         `json:"windows,omitempty"`
	Top      [][]int32        `json:"top,omitempty"`       // of the dense rung: per window the likeliest tokens
	LogProbs [][]float32      `json:"log_probs,omitempty"` // of the dense rung: per window those of the targets
	Resident [][]int32        `json:"resident,omitempty"`  // per sparse layer, behind the last window
	Items    []eval.ItemScore `json:"items,omitempty"`

	path string
}

// identity hashes what a rung's figures depend on.
func identity(bs []*bundle.Bundle, r Rung, data any) string {
	sums := map[string]string{}
	for _, m := range bs[r.bundle].Manifest.Members {
		weights := m.Name == bundle.MemberRows || m.Name == bundle.MemberResident || m.Name == bundle.MemberTokenizer || m.Name == bundle.MemberConfig
		if weights || r.Selector != DenseName && r.Selector != BestName {
			sums[m.Name] = m.SHA256
		}
	}
	b, err := json.Marshal(map[string]any{"version": stateVersion, "members": sums, "rung": r, "data": data})
	if err != nil {
		panic(err) // numbers and strings
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// openState reads what an earlier run left; what cannot be used is as if it were not there.
func openState(work string, bs []*bundle.Bundle, r Rung, data any) (*state, error) {
	s := &state{Key: identity(bs, r, data), Rung: r}
	s.path = filepath.Join(work, stateDir, fmt.Sprintf("%s-%.16s.json", r.Selector, s.Key))
	b, err := format.ReadFile(s.path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	var old state
	if json.Unmarshal(b, &old) == nil && old.Key == s.Key && old.sound(bs[r.bundle]) {
		old.path, old.Rung = s.path, r
		return &old, nil
	}
	return s, nil
}

// sound tells whether a state can be worked on.
func (s *state) sound(b *bundle.Bundle) bool {
	m := b.Manifest.Model
	layers := 0
	if s.Rung.Selector != DenseName {
		layers = m.Layers - s.Rung.Dense
	}
	for _, t := range s.Windows {
		if t == nil || s.Rung.Selector != DenseName && t.Drift == nil || len(t.Reads) != layers || len(t.Recall) != layers || len(t.Hits) != layers || len(t.IDs) != layers || len(t.Rank) != layers {
			return false
		}
	}
	if len(s.Windows) > 0 && len(s.Resident) != layers || s.Rung.Selector == DenseName && (len(s.Top) != len(s.Windows) || len(s.LogProbs) != len(s.Windows)) {
		return false
	}
	for _, ids := range s.Resident {
		last := int32(-1)
		for _, n := range ids {
			if n <= last || int(n) >= m.Intermediate {
				return false
			}
			last = n
		}
		if len(ids) > s.Rung.KMax {
			return false
		}
	}
	return true
}

func (s *state) save() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o777); err != nil {
		return format.IOf("%w", err)
	}
	return format.WriteFileAtomic(s.path, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}
