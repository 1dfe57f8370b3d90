package engine

import (
	"context"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/storage"
)

// usedMembers are the members whose values this engine works with and that carry no checksums of their own, as records
// do.
func (e *Engine) usedMembers() []string {
	names := []string{bundle.MemberResident}
	if !e.geometry.Trailer {
		names = append(names, bundle.MemberRowsCRC)
	}
	if e.Plan.Mode != ModeSparse {
		return names
	}
	if e.Bundle.Has(bundle.MemberMeans) {
		names = append(names, bundle.MemberMeans)
	}
	return append(names, bundle.SelectorMembers(e.opts.Selector)...)
}

// verifyMembers compares the members in use with their checksums while the rest is loaded. The returned function waits
// for the result; with abandon it only makes the work end.
func (e *Engine) verifyMembers(ctx context.Context) (wait func(abandon bool) error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	b, names := e.Bundle, e.usedMembers()
	go func() {
		for _, name := range names {
			if err := b.VerifyMember(ctx, name); err != nil {
				done <- err
				return
			}
			e.forgetPages(name)
		}
		done <- nil
	}()
	return func(abandon bool) error {
		if abandon {
			cancel()
		}
		defer cancel()
		return <-done
	}
}

// forgetPages takes a member that was read out of the page cache, where the budget is what forces reads: a control group counts
// its pages as ours.
func (e *Engine) forgetPages(name string) {
	if e.Plan.Mode != ModeResident {
		storage.DropCache(e.Bundle.Path(name))
	}
}
