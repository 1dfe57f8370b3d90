package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
)

// written is an answer's other end that is never slow.
type written struct {
	sink
}

func (w *written) Flush()                           {}
func (w *written) SetWriteDeadline(time.Time) error { return nil }
func (w *written) SetReadDeadline(time.Time) error  { return nil }

// TestGoneClientCostsOneToken holds that a client that leaves costs the token in progress and no other, whether its answer
// is streamed or not, by both endpoints in every mode; and that the next request gets its text.
func TestGoneClientCostsOneToken(t *testing.T) {
	dir := endless(t)
	for _, o := range enginetest.Modes() {
		s := open(t, dir, o, Options{})
		h := s.Handler()
		for path, in := range map[string]string{"/v1/completions": `"prompt":"x"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`} {
			for _, stream := range []bool{false, true} {
				ctx, leave := context.WithCancel(context.Background())
				body := fmt.Sprintf(`{%s,"temperature":0,"n":256,"max_tokens":250,"stream":%v}`, in, stream)
				req, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1"+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				w, before, done := &written{sink{header: http.Header{}}}, s.m.generated.Load(), make(chan struct{})
				go func() {
					h.ServeHTTP(w, req)
					close(done)
				}()
				waitFor(t, "tokens", func() bool { return s.m.generated.Load() > before+5 })
				leave()
				at := s.m.generated.Load()
				<-done
				if n := s.m.generated.Load() - at; n > 1 || at-before >= 256*250 {
					t.Errorf("%s %s, stream %v: %d tokens more for a client that had gone at %d", o.Mode, path, stream, n, at-before)
				}
				if s.m.running.Load() != 0 {
					t.Errorf("%s %s, stream %v: the engine goes on", o.Mode, path, stream)
				}
			}
		}
		s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":3}`).first(t, o.Mode+" afterwards", "xxx", "length")
	}
}

// held is a context that holds its job up, the engine with it, until it is let go.
type held struct {
	context.Context
	let chan struct{}
}

func (h held) Err() error {
	<-h.let
	return context.Canceled
}

// hold keeps the engine at one job until the returned function is called.
func (s *site) hold(t *testing.T) (let func()) {
	t.Helper()
	c := held{context.Background(), make(chan struct{})}
	j := newJob(c, params{n: 1, maxTokens: 1, top: -1}, []prompt{{ids: []int32{int32(enginetest.Byte('x'))}}}, false)
	if !s.q.put(j) {
		t.Fatal("the queue is closed")
	}
	waitFor(t, "the engine to be held", func() bool { return s.m.running.Load() == 1 })
	return func() {
		close(c.let)
		<-j.done
	}
}

// listening serves on a connection as nprun does.
func (s *site) listening(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	s.url = "http://" + l.Addr().String()
}

// TestSilentStreamLives holds that a stream that has nothing to say begins, is kept open by comments, and comes whole
// however much longer it takes than one write may; as does an answer that is not streamed.
func TestSilentStreamLives(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	s.listening(t)
	s.pace = pace{write: 400 * time.Millisecond, alive: 20 * time.Millisecond, early: time.Millisecond}
	for path, in := range map[string]string{"/v1/completions": `"prompt":"x"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`} {
		let := s.hold(t)
		r := s.do("POST", path, `{`+in+`,"temperature":0,"max_tokens":9,"stream":true}`, nil)
		if r.StatusCode != 200 || s.q.len() != 1 {
			t.Errorf("%s: status %d with %d waiting: the headers did not come early", path, r.StatusCode, s.q.len())
		}
		whole := make(chan *reply, 1)
		go func() { whole <- s.post(path, `{`+in+`,"temperature":0,"max_tokens":9}`) }()
		time.Sleep(3 * s.pace.write)
		let()
		got := s.read(r)
		got.first(t, path, strings.Repeat("x", 9), "length")
		if !got.done || strings.Count(got.body, ": still here") < 3 {
			t.Errorf("%s: done %v, %q", path, got.done, got.body)
		}
		(<-whole).first(t, path+", not streamed", strings.Repeat("x", 9), "length")
	}
}

// TestStuckReaderIsGivenUp holds that a client that does not read for as long as a write may take is given up, and with
// it the rest of its answer.
func TestStuckReaderIsGivenUp(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	s.listening(t)
	s.pace.write = 100 * time.Millisecond
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"prompt":"x","temperature":0,"n":190,"max_tokens":250,"stream":true,"logprobs":20}` // some 30 MB of events, more than the sockets hold
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	waitFor(t, "tokens", func() bool { return s.m.generated.Load() > 0 })
	waitFor(t, "the engine to be free", func() bool { return s.m.running.Load() == 0 })
	if n := s.m.generated.Load(); n >= 190*250 {
		t.Errorf("%d tokens for a client that does not read", n)
	}
	s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":2}`).first(t, "another client", "xx", "length")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(b), "[DONE]") {
		t.Errorf("the connection was not given up: %d bytes, %v", len(b), err)
	}
}
