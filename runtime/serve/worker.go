package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// answer is one choice of a request.
type answer struct {
	text   strings.Builder
	tokens []tokenInfo
	finish string
}

// event is a piece of a choice.
type event struct {
	choice int
	text   string
	tokens []tokenInfo
	finish string
}

// job is a request on its way through the worker.
type job struct {
	ctx     context.Context
	p       params
	prompts []prompt
	echo    bool
	box     *mailbox // nil unless the answer is streamed

	// what the worker fills in; to be read after done
	answers           []answer // by choice: prompt × n
	prompted          int      // tokens of the prompts
	cached, generated int
	err               *apiError
	done              chan struct{}
}

func newJob(ctx context.Context, p params, prompts []prompt, echo bool) *job {
	j := &job{ctx: ctx, p: p, prompts: prompts, echo: echo, answers: make([]answer, len(prompts)*p.n), done: make(chan struct{})}
	for _, x := range prompts {
		j.prompted += len(x.ids)
	}
	if p.stream {
		j.box = &mailbox{ready: make(chan struct{}, 1)}
	}
	return j
}

// emit adds a piece to a choice.
func (j *job) emit(ev event) {
	if j.box != nil {
		j.box.put(ev)
		return
	}
	a := &j.answers[ev.choice]
	a.text.WriteString(ev.text)
	a.tokens = append(a.tokens, ev.tokens...)
	if ev.finish != "" {
		a.finish = ev.finish
	}
}

// mailbox takes pieces from the worker without ever holding it up.
type mailbox struct {
	mu     sync.Mutex
	events []event
	ready  chan struct{} // holds one token when events may be there
}

func (b *mailbox) put(ev event) {
	b.mu.Lock()
	b.events = append(b.events, ev)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	ev := b.events
	b.events = nil
	return ev
}

// work runs jobs until the queue is closed and empty.
func (s *Server) work() {
	defer close(s.stopped)
	for j := s.q.take(); j != nil; j = s.q.take() {
		s.m.running.Store(1)
		start := time.Now()
		j.err = s.run(j)
		s.q.took(time.Since(start))
		s.m.running.Store(0)
		close(j.done)
	}
}

// run answers every choice of a job.
func (s *Server) run(j *job) (failed *apiError) {
	defer func() {
		if p := recover(); p != nil {
			// A panic is a bug, and the engine's state is unknown after it: answer nothing more from it.
			s.broken.Store(true)
			fmt.Fprintf(s.o.Log, "panic while answering: %v\n%s", p, debug.Stack())
			failed = failure(500, "server_error", "internal", "the server has failed; see its log")
		}
	}()
	if s.broken.Load() {
		return failure(500, "server_error", "internal", "the server has failed before; restart it")
	}
	for p := range j.prompts {
		for i := range j.p.n {
			if err := s.answer(j, p, i); err != nil {
				s.e.Reset() // what is in the cache may be what failed
				if errors.Is(err, context.Canceled) {
					if s.ctx.Err() != nil {
						return errStopping
					}
					return errGone
				}
				return toAPI(err)
			}
		}
	}
	return nil
}
