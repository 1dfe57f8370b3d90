package stage

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"neuroprefetcher/format"
)

const (
	quietFor  = 2 * time.Second  // work that ends sooner shows nothing
	lineEvery = 10 * time.Second // between plain lines
	barEvery  = 200 * time.Millisecond
)

// Progress tells how far a stage is: a bar on a terminal, else a plain line now and then with rate and time
// left. A nil Progress shows nothing. Add may be called from any goroutine; Start and Done from one.
type Progress struct {
	stage string
	w     io.Writer // nil: show nothing
	tty   bool
	mu    *sync.Mutex // the writer's

	label string
	unit  string
	total int64
	done  atomic.Int64
	stop  chan struct{}
	ended chan struct{}
}

func newProgress(e *Env, stage string) *Progress {
	p := &Progress{stage: stage, mu: &e.mu}
	if e.Log != nil && !e.Quiet {
		p.w = e.Log
		if f, ok := e.Log.(*os.File); ok && !e.JSON {
			p.tty = term.IsTerminal(int(f.Fd()))
		}
	}
	return p
}

// NewProgress is for work outside of a stage, such as verifying a bundle.
func NewProgress(e *Env, name string) *Progress { return newProgress(e, name) }

// name is the stage and, where it is another word, the piece of work.
func (p *Progress) name() string {
	if p.label == p.stage {
		return p.stage
	}
	return p.stage + ": " + p.label
}

// Start begins a piece of work of total units ("layers", "tokens"; "B" for bytes). total 0 is unknown. It ends
// the piece before.
func (p *Progress) Start(label string, total int64, unit string) {
	if p == nil {
		return
	}
	p.Done()
	p.label, p.total, p.unit = label, total, unit
	p.done.Store(0)
	if p.w == nil {
		return
	}
	p.stop, p.ended = make(chan struct{}), make(chan struct{})
	go p.show(time.Now(), p.stop, p.ended)
}

// Add counts n more units done.
func (p *Progress) Add(n int64) {
	if p != nil {
		p.done.Add(n)
	}
}

// Done ends the piece of work. It may be called again.
func (p *Progress) Done() {
	if p == nil || p.stop == nil {
		return
	}
	close(p.stop)
	<-p.ended
	p.stop = nil
}

// show runs beside the work until it is told to stop.
func (p *Progress) show(start time.Time, stop, ended chan struct{}) {
	defer close(ended)
	every := lineEvery
	var bar *progressbar.ProgressBar
	if p.tty {
		every = barEvery
		bar = p.bar()
		bar.StartWithoutRender() // its clock, so that rates are of the whole time
	}
	select {
	case <-stop:
		return
	case <-time.After(quietFor):
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.mu.Lock()
		if bar != nil {
			bar.Set64(p.shown())
		} else {
			fmt.Fprintln(p.w, p.line(p.done.Load(), time.Since(start)))
		}
		p.mu.Unlock()
		select {
		case <-stop:
			if bar != nil {
				bar.Clear()
			}
			return
		case <-tick.C:
		}
	}
}

// shown stays below the total: the bar refuses more.
func (p *Progress) shown() int64 {
	n := p.done.Load()
	if p.total > 0 {
		n = min(n, p.total)
	}
	return n
}

func (p *Progress) bar() *progressbar.ProgressBar {
	total := p.total
	if total <= 0 {
		total = -1
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(p.name()),
		progressbar.OptionShowBytes(p.unit == "B"),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(barEvery/2),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(true))
}

// line is one plain line: "repack: layers: 12 of 32 layers (37%), 1.5 layers/s, 13s left".
func (p *Progress) line(done int64, d time.Duration) string {
	amount := func(n float64) string {
		if p.unit == "B" {
			return format.IEC(int64(n))
		}
		if n >= 100 || n == float64(int64(n)) {
			return fmt.Sprintf("%.0f %s", n, p.unit)
		}
		return fmt.Sprintf("%.2g %s", n, p.unit)
	}
	s := fmt.Sprintf("%s: %s", p.name(), amount(float64(done)))
	if p.total > 0 {
		s = fmt.Sprintf("%s: %s of %s (%d%%)", p.name(), trimUnit(amount(float64(done)), p.unit), amount(float64(p.total)), min(100, done*100/p.total))
	}
	rate := float64(done) / max(d.Seconds(), 1e-9)
	if rate > 0 {
		s += fmt.Sprintf(", %s/s", amount(rate))
		if p.total > done {
			left := time.Duration(float64(p.total-done) / rate * float64(time.Second))
			s += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	return s
}

func trimUnit(s, unit string) string {
	if unit != "B" && len(s) > len(unit)+1 {
		return s[:len(s)-len(unit)-1]
	}
	return s
}
