package clix

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"neuroprefetcher/format"
)

// ByteProgress shows how far a walk over bytes is: a bar on a terminal, else a line every ten seconds; nothing
// in the first two seconds. The returned function may be called from any goroutine; the other one ends it.
func ByteProgress(w io.Writer, label string) (report func(done, total int64), end func()) {
	p := &byteProgress{w: w, label: label, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		p.tty = term.IsTerminal(int(f.Fd()))
	}
	return p.report, p.end
}

type byteProgress struct {
	w     io.Writer
	label string
	start time.Time
	tty   bool

	mu   sync.Mutex
	next time.Duration
	bar  *progressbar.ProgressBar
}

func (p *byteProgress) report(done, total int64) {
	d := time.Since(p.start)
	p.mu.Lock()
	defer p.mu.Unlock()
	if d < max(p.next, 2*time.Second) {
		return
	}
	if p.tty {
		if p.bar == nil {
			p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(p.label),
				progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
		p.bar.Set64(min(done, total))
		p.next = d + 100*time.Millisecond
		return
	}
	rate := float64(done) / d.Seconds()
	line := fmt.Sprintf("%s: %s of %s, %s/s", p.label, format.IEC(done), format.IEC(total), format.IEC(int64(rate)))
	if rate > 0 && done < total {
		line += fmt.Sprintf(", %s left", time.Duration(float64(total-done)/rate*1e9).Round(time.Second))
	}
	fmt.Fprintln(p.w, line)
	p.next = d + 10*time.Second
}

func (p *byteProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
}
