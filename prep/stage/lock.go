package stage

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"neuroprefetcher/format"
)

// Lock makes the work folder and takes it for this process. It counts: a run of several stages holds the lock
// from its first stage to its last, and Run takes it for a single one.
func (e *Env) Lock() error {
	if e.holders > 0 {
		e.holders++
		return nil
	}
	if e.Work == "" {
		return errors.New("no work folder")
	}
	if st, err := os.Stat(e.Work); err == nil && !st.IsDir() {
		return format.Inputf("%s: the work folder is a file", e.Work)
	}
	if err := os.MkdirAll(e.Work, 0o777); err != nil {
		return format.IOf("make the work folder: %w", err)
	}
	l := flock.New(filepath.Join(e.Work, lockFile))
	ok, err := l.TryLock()
	if err != nil {
		return format.IOf("%s: lock the work folder: %w", e.Work, err)
	}
	if !ok {
		return format.Hint(format.Inputf("%s: another npprep is working in this folder", e.Work), "wait for it, or use another --work")
	}
	e.lock, e.holders = l, 1
	return nil
}

// Unlock undoes one Lock.
func (e *Env) Unlock() {
	if e.holders--; e.holders == 0 {
		e.lock.Close() // the file stays: removing it would race with the next holder
		e.lock = nil
	}
}
