package main

import (
	"fmt"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
)

// usualReuse is what the estimates assume: selectors on real text gave 0.63 to 0.9.
const usualReuse = 0.8

// readTimes turns the bytes of a plan into time, by the curve that bench --drive kept. Without one it says nothing.
type readTimes struct {
	rows, whole float64 // bytes per second of records and of whole layers; 0 unknown
}

func newReadTimes(b *bundle.Bundle) (t readTimes) {
	cache, err := cacheDir()
	if err != nil {
		return t
	}
	c, ok := measure.KeptCurve(cache, b.Path(bundle.MemberRows))
	if !ok {
		return t
	}
	t.rows, _ = c.At(c.Usual(), b.Manifest.Rows.Stride)
	t.whole, _ = c.At(c.Usual(), 4<<20)
	return t
}

func (t readTimes) sparse(p *engine.Plan) string {
	if t.rows <= 0 || p.ReadsPerToken == 0 {
		return ""
	}
	return fmt.Sprintf(", which with a reuse of %g takes the drive %s", usualReuse, seconds((1-usualReuse)*float64(p.ReadsPerToken)/t.rows))
}

func (t readTimes) stream(p *engine.Plan) string {
	if t.whole <= 0 || p.ReadsPerToken == 0 {
		return ""
	}
	return fmt.Sprintf(", which takes the drive %s at %s/s", seconds(float64(p.ReadsPerToken)/t.whole), clix.FormatSize(int64(t.whole)))
}
