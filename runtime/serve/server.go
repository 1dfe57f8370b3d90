package serve

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
)

// The limits of connections.
const (
	maxConns      = 512
	maxHeader     = 64 << 10
	headerTime    = 10 * time.Second
	idleTime      = 2 * time.Minute
	writeTime     = 2 * time.Minute
	keepAliveTime = 10 * time.Second
	earlyTime     = time.Second
)

// pace is the time that answers have; tests have less of it.
type pace struct {
	write time.Duration // for one piece of a stream, or one whole answer
	alive time.Duration // between comments that keep a silent stream open
	early time.Duration // after which a stream's headers go out though there is no text yet
}

// Options say how a server answers. The zero value of Queue, MaxBody and Grace chooses.
type Options struct {
	Model        string         // the id of the one model
	Template     *chat.Template // nil: no chat
	TemplateText string
	Queue        int // requests that wait while one runs; default 16
	MaxBody      int64
	Grace        time.Duration // how long requests may go on once the server stops
	Keys         []string      // any of which a request must bring; none: no key
	Loopback     bool          // only this machine reaches it: hosts are checked against DNS rebinding
	Origins      []string      // web origins that may call it, "*" for all
	Log          io.Writer     // one line for each request; nil: none
	Version      string
}

// Server answers from one engine. Close stops its worker; the engine stays the caller's.
type Server struct {
	e       *engine.Engine
	o       Options
	q       *queue
	m       metrics
	begun   time.Time
	ctx     context.Context // of all jobs
	cancel  context.CancelFunc
	stopped chan struct{} // the worker has ended
	ending  atomic.Bool
	broken  atomic.Bool
	pace    pace

	adjusted []float32 // (vocab) the worker's
}

// New starts the worker.
func New(e *engine.Engine, o Options) (*Server, error) {
	if o.Queue == 0 {
		o.Queue = 16
	}
	if o.MaxBody == 0 {
		o.MaxBody = 2 << 20
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Queue < 0 || o.MaxBody < 0 || o.Grace < 0 {
		return nil, format.Inputf("queue %d, body limit %d, grace %v: want positive numbers", o.Queue, o.MaxBody, o.Grace)
	}
	s := &Server{e: e, o: o, q: newQueue(o.Queue + 1), begun: time.Now(), stopped: make(chan struct{}), pace: pace{writeTime, keepAliveTime, earlyTime}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.m.init(e)
	go s.work()
	return s, nil
}

// Close ends the work in progress within a layer and waits for the worker.
func (s *Server) Close() {
	s.ending.Store(true)
	s.cancel()
	s.q.close()
	<-s.stopped
}

// Serve answers on l until ctx is done. Then it takes no more requests, lets those that are in go on for the grace time,
// and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(limitConns(l, maxConns)) }()
	select {
	case err := <-failed:
		return format.IOf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.ending.Store(true)
	grace, cancel := context.WithTimeout(context.Background(), s.o.Grace)
	defer cancel()
	err := h.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cancel() // answers in progress end with an error that says so
		last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err = h.Shutdown(last); err != nil {
			err = h.Close()
		}
	}
	<-failed
	return err
}

// seed is for requests that bring none.
func seed() uint64 { return rand.Uint64() }
