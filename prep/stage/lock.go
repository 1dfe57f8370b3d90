package stage

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
)

// Lock makes the work folder and takes it for this process. It counts: a run of several stages holds the lock
// from its first stage to its last, and Run takes it for a single one.
func (e *Env) Lock() error {
	if e.holders > 0 {
		e.holders++
		return nil
	}
	l, err := e.take(lockFile, (*flock.Flock).TryLock)
	if err != nil {
		return err
	}
	for _, name := range []string{hashFile, reportFile} { // a killed run may have been writing them; now nobody is
		if err := format.RemoveTemps(filepath.Join(e.Work, name)); err != nil {
			l.Close()
			return err
		}
	}
	e.lock, e.holders = l, 1
	return nil
}

// take takes a lock file of the work folder, which it makes.
func (e *Env) take(name string, try func(*flock.Flock) (bool, error)) (*flock.Flock, error) {
	if e.Work == "" {
		return nil, errors.New("no work folder")
	}
	if st, err := os.Stat(e.Work); err == nil && !st.IsDir() {
		return nil, format.Inputf("%s: the work folder is a file", e.Work)
	}
	if _, err := os.Stat(filepath.Join(e.Work, bundle.MemberManifest)); err == nil {
		return nil, format.Hint(format.Inputf("%s: is a bundle, not a work folder", e.Work), "choose another --work")
	}
	if err := os.MkdirAll(e.Work, 0o777); err != nil {
		return nil, format.IOf("make the work folder: %w", err)
	}
	l := flock.New(filepath.Join(e.Work, name))
	ok, err := try(l)
	if err != nil {
		return nil, format.IOf("%s: lock the work folder: %w", e.Work, err)
	}
	if !ok {
		return nil, format.Hint(format.Inputf("%s: another npprep is working in this folder", e.Work), "wait for it, or use another --work")
	}
	return l, nil
}

// lockFor takes what a stage needs: the work folder, or for a shard its own folder and a share of the work folder, so
// that several shards can run in a folder that several machines see.
func (e *Env) lockFor(s *Spec) (unlock func(), err error) {
	if s.Shard.All() || e.holders > 0 {
		return e.Unlock, e.Lock()
	}
	shared, err := e.take(lockFile, (*flock.Flock).TryRLock)
	if err != nil {
		return nil, err
	}
	own, err := e.take(lockFile+"-"+s.folder(), (*flock.Flock).TryLock)
	if err != nil {
		shared.Close()
		return nil, err
	}
	return func() { own.Close(); shared.Close() }, nil
}

// Unlock undoes one Lock.
func (e *Env) Unlock() {
	if e.holders--; e.holders == 0 {
		e.lock.Close() // the file stays: removing it would race with the next holder
		e.lock = nil
	}
}
