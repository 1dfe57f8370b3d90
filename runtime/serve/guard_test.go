package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
)

// endless is a rig that says x for ever.
func endless(t testing.TB) string {
	rig := &enginetest.Rig{Template: echoTemplate}
	rig.Chain(enginetest.Byte('x'), enginetest.Byte('x'))
	return rig.Bundle(t)
}

// busy sends a request that keeps the engine at work until the returned function is called.
func (s *site) busy(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	before := s.m.generated.Load()
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"x","temperature":0,"n":256,"max_tokens":250}`))
			if r, err := http.DefaultClient.Do(req); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}
	}()
	waitFor(t, "the engine to be busy", func() bool { return s.m.generated.Load() > before })
	return func() {
		cancel()
		wg.Wait()
	}
}

// TestQueue holds that requests beyond the queue are told to come back, that waiting ones are served in the end, and
// that one whose client leaves gives its place back while it waits.
func TestQueue(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{Queue: 2})
	stop := s.busy(t)
	results := make(chan *reply, 2)
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"x","max_tokens":2}`))
	gone := make(chan error, 1)
	go func() { _, err := http.DefaultClient.Do(req); gone <- err }()
	waitFor(t, "one to wait", func() bool { return s.q.len() == 1 })
	go func() { results <- s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":2}`) }()
	waitFor(t, "two to wait", func() bool { return s.q.len() == 2 })
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		r := s.post(path, `{"prompt":"x"}`)
		if r.status != 429 || r.header.Get("Retry-After") == "" || r.err.Type != "rate_limit_error" {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("the request that left was answered")
	}
	waitFor(t, "its place", func() bool { return s.q.len() == 1 })
	go func() {
		results <- s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":2,"stream":true}`)
	}()
	waitFor(t, "two to wait", func() bool { return s.q.len() == 2 })
	stop()
	for range 2 {
		(<-results).first(t, "waited", "xx", "length")
	}
}

// TestWaitingStreamBegins holds that a stream that waits gets its headers early.
func TestWaitingStreamBegins(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	stop := s.busy(t)
	r := s.do("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":2,"temperature":0,"stream":true}`, nil)
	if r.StatusCode != 200 {
		t.Errorf("status %d", r.StatusCode)
	}
	t.Logf("%d still wait when the headers are there", s.q.len()) // none, on a machine that is fast enough to have answered
	stop()
	s.read(r).first(t, "after waiting", "xx", "length")
}

func TestKeysHostsOrigins(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{Keys: []string{"good", "better"}, Loopback: true})
	body := `{"prompt":"x","max_tokens":1}`
	for _, c := range []struct {
		method, path, key string
		status            int
	}{
		{"POST", "/v1/completions", "", 401}, {"POST", "/v1/completions", "Bearer bad", 401}, {"POST", "/v1/completions", "Bearer ", 401}, {"POST", "/v1/completions", "good", 401},
		{"POST", "/v1/completions", "Bearer good", 200}, {"POST", "/v1/completions", "Bearer better", 200}, {"POST", "/v1/completions", "Bearer goo", 401},
		{"GET", "/v1/models", "", 401}, {"GET", "/stats", "", 401}, {"GET", "/metrics", "", 401}, {"GET", "/nowhere", "", 401}, {"GET", "/", "", 200}, {"GET", "/healthz", "", 200},
		{"GET", "/metrics", "Bearer good", 200}, {"GET", "/v1/models", "Bearer good", 200}, {"GET", "/nowhere", "Bearer good", 404},
	} {
		h := map[string]string{}
		if c.key != "" {
			h["Authorization"] = c.key
		}
		r := s.do(c.method, c.path, body, h)
		if r.StatusCode != c.status {
			t.Errorf("%+v: %d", c, r.StatusCode)
		}
		if c.status == 401 {
			if e := s.read(r).err; e == nil || e.Type != "authentication_error" || strings.Contains(e.Message, "good") {
				t.Errorf("%+v: %+v", c, e)
			}
			continue
		}
		r.Body.Close()
	}

	s = open(t, endless(t), engine.Options{}, Options{Loopback: true, Origins: []string{"https://friend.example"}})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	for _, c := range []struct {
		method, host, origin string
		status               int
		allowed              string
	}{
		{"POST", "", "", 200, ""}, {"POST", "localhost:" + port, "", 200, ""}, {"POST", "[::1]:" + port, "", 200, ""}, {"POST", "evil.example", "", 403, ""}, {"POST", "friend.example", "", 200, ""},
		{"POST", "", s.url, 200, ""}, {"POST", "", "https://evil.example", 403, ""}, {"POST", "", "null", 403, ""},
		{"POST", "", "https://friend.example", 200, "https://friend.example"},
		{"OPTIONS", "", "https://evil.example", 204, ""}, {"OPTIONS", "", "https://friend.example", 204, "https://friend.example"}, {"OPTIONS", "", "", 204, ""},
	} {
		h := map[string]string{}
		if c.host != "" {
			h["Host"] = c.host
		}
		if c.origin != "" {
			h["Origin"] = c.origin
		}
		r := s.do(c.method, "/v1/completions", body, h)
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if r.StatusCode != c.status || r.Header.Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("%+v: %d %v", c, r.StatusCode, r.Header)
		}
	}
	all := open(t, endless(t), engine.Options{}, Options{Origins: []string{"*"}})
	r := all.do("OPTIONS", "/v1/chat/completions", "", map[string]string{"Origin": "https://any.example", "Access-Control-Request-Method": "POST"})
	r.Body.Close()
	if r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Origin") == "" || !strings.Contains(r.Header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

func TestPaths(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{Model: "some/model", MaxBody: 1 << 20, Version: "1"})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/models", "", 200}, {"GET", "/v1/models/some/model", "", 200}, {"GET", "/v1/models/other", "", 404}, {"HEAD", "/v1/models", "", 200},
		{"GET", "/", "", 200}, {"GET", "/index.html", "", 404}, {"GET", "/v1/completions", "", 405}, {"PUT", "/v1/completions", "", 405}, {"T", "/v1/completions", "", 405},
		{"POST", "/v1/models", "", 405}, {"POST", "/v1/embeddings", "{}", 404}, {"GET", "/v1/%2e%2e/x", "", 404}, {"GET", "/healthz", "", 200}, {"GET", "/stats", "", 200}, {"GET", "/metrics", "", 200},
		{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 20<<20) + `"}`, 413},
	} {
		r := s.do(c.method, c.path, c.body, nil)
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != c.status {
			t.Errorf("%s %s: %d", c.method, c.path, r.StatusCode)
		}
		if c.status >= 400 {
			var w wire
			if json.Unmarshal(b, &w) != nil || w.Error == nil || w.Error.Message == "" {
				t.Errorf("%s %s: %.200s", c.method, c.path, b)
			}
		}
		if c.status == 405 && r.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
}

// TestFigures runs a sparse engine and compares /stats and /metrics with what was asked for.
func TestFigures(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{Mode: engine.ModeSparse, Dense: 2}, Options{})
	s.post("/v1/completions", `{"prompt":[5,6,7,8],"max_tokens":21,"temperature":0,"ignore_eos":true}`)
	r := s.do("GET", "/stats", "", nil)
	var st serverStats
	if err := json.NewDecoder(r.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if st.Tokens.Prompt != 4 || st.Tokens.Generated != 21 || st.Tokens.Steps != 20 || st.Mode != "sparse" || st.Dense != 2 || len(st.Layers) != 6 {
		t.Errorf("%+v", st)
	}
	var needed, read int64
	for i, l := range st.Layers {
		if l.Dense != (i < 2) || !l.Dense && (l.Needed != 20*int64(st.KMax) || l.Reuse == nil) {
			t.Errorf("layer %d: %+v", i, l)
		}
		needed, read = needed+l.Needed, read+l.Read
	}
	if needed != st.Read.Needed || read != st.Read.Rows || st.Memory.RSS <= 0 || st.Memory.Budget != 1<<30 {
		t.Errorf("%d and %d rows by layer, %+v", needed, read, st)
	}
	if sum := st.Time.Compute + st.Time.IOWait + st.Time.Predict + st.Time.Other; sum < 0.999*st.Time.Steps || sum > 1.001*st.Time.Steps {
		t.Errorf("times do not add up: %+v", st.Time)
	}
	r = s.do("GET", "/metrics", "", nil)
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	types := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if f := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			types[f[2]] = true
		} else if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(f[0], "{")
			var v float64
			if _, err := fmt.Sscan(f[len(f)-1], &v); err != nil || !types[name] {
				t.Errorf("metrics line %q: %v", line, err)
			}
		}
	}
	for _, want := range []string{"nprun_generated_tokens_total 21\n", "nprun_prompt_tokens_total 4\n", `nprun_requests_total{path="/v1/completions",code="200"} 1`, "nprun_reuse_ratio ", `nprun_step_seconds_total{part="io_wait"}`, "nprun_resident_memory_bytes ", "nprun_requests_queued 0\n", `nprun_read_bytes_total{for="step"}`, "nprun_tokens_per_second "} {
		if !strings.Contains(string(b), want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}

// TestPageLoadsNothing holds that the page refers to nothing outside itself.
func TestPageLoadsNothing(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	r := s.do("GET", "/", "", nil)
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.HasPrefix(string(b), "<!doctype html>") {
		t.Errorf("%v", r.Header)
	}
	for _, bad := range []string{"http://", "https://", "<link rel=\"stylesheet\"", "src=", "@import", "innerHTML", "eval("} {
		if strings.Contains(strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// TestShutdown holds that a stopping server finishes what is in, takes nothing more, and ends what outlasts its grace.
func TestShutdown(t *testing.T) {
	for _, grace := range []time.Duration{time.Minute, 300 * time.Millisecond} {
		e := enginetest.Open(t, endless(t), engine.Options{})
		s, err := New(e, Options{Model: "m", Grace: grace})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		c := &site{Server: s, t: t, url: "http://" + l.Addr().String(), e: e}
		n := 8 // some milliseconds of work, or more than the grace
		if grace < time.Second {
			n = 256
		}
		got := make(chan *reply, 1)
		go func() {
			got <- c.post("/v1/completions", fmt.Sprintf(`{"prompt":"x","temperature":0,"n":%d,"max_tokens":250,"stream":true}`, n))
		}()
		waitFor(t, "tokens", func() bool { return s.m.generated.Load() > 3 })
		stop()
		r := <-got
		if long := grace < time.Second; long && (r.done || r.err == nil || !strings.Contains(r.err.Message, "shutting down")) || !long && (!r.done || len(r.texts) != 8 || len(r.texts[7]) != 250) {
			t.Errorf("grace %v: done %v, %d choices, %+v", grace, r.done, len(r.texts), r.err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := http.Get(c.url + "/healthz"); err == nil {
			t.Error("still listening")
		}
		s.Close()
	}
}

// TestSlowReader holds that a client that does not read holds nobody up and gets its answer whole when it does.
func TestSlowReader(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"prompt":"x","temperature":0,"n":80,"max_tokens":250,"stream":true}` // some 3 MB of events, more than the sockets hold
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	waitFor(t, "tokens", func() bool { return s.m.generated.Load() > 0 })
	s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":2}`).first(t, "another client", "xx", "length")
	if n := s.m.generated.Load(); n != 80*250+2 {
		t.Errorf("%d tokens", n)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || strings.Count(string(b), `"text":"x"`) != 80*250 || strings.Count(string(b), "[DONE]") != 1 {
		t.Errorf("%d bytes, %d tokens, %v", len(b), strings.Count(string(b), `"text":"x"`), err)
	}
}

// TestHeaderLimit holds that endless headers are refused.
func TestHeaderLimit(t *testing.T) {
	e := enginetest.Open(t, endless(t), engine.Options{})
	s, err := New(e, Options{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n")
	for range 40 {
		if _, err := fmt.Fprintf(c, "X-Long: %s\r\n", strings.Repeat("y", 4000)); err != nil {
			break // it has been refused already
		}
	}
	b := make([]byte, 100)
	n, _ := c.Read(b)
	if got := string(b[:n]); n > 0 && !strings.Contains(got, "431") {
		t.Errorf("%q", got)
	}
	c.Close()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	s.Close()
}

// TestConnectionLimit holds that a limited listener takes no more connections than it may, and the next once one ends.
func TestConnectionLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConns(inner, 2)
	accepted := make(chan net.Conn, 3)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	defer (<-accepted).Close()
	select {
	case <-accepted:
		t.Fatal("a third connection was accepted")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // gives one place back, not two
	defer (<-accepted).Close()
	l.Close()
	<-ended
}

// TestEndingServer holds what a request gets that arrives on an open connection while the server stops.
func TestEndingServer(t *testing.T) {
	s := open(t, endless(t), engine.Options{}, Options{})
	s.ending.Store(true)
	if r := s.post("/v1/completions", `{"prompt":"x"}`); r.status != 503 || !strings.Contains(r.err.Message, "shutting down") {
		t.Errorf("%d %s", r.status, r.body)
	}
	r := s.do("GET", "/healthz", "", nil)
	r.Body.Close()
	if r.StatusCode != 503 {
		t.Errorf("healthz: %d", r.StatusCode)
	}
}

func descriptors(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// TestSoak sends many requests from many clients, a third of which leave at a random moment: every answer that is
// finished is right, and nothing is left behind: no goroutine, no descriptor, no memory, no place in the queue.
func TestSoak(t *testing.T) {
	dir := enginetest.Tiny(t)
	o := engine.Options{Mode: engine.ModeSparse, Dense: 2, KMax: 448}
	ref := enginetest.Open(t, dir, o)
	want := map[string]string{}
	prompts := []string{tinyPrompt, "The", "At the mill", "Tara came to the orchard."}
	for _, p := range prompts {
		ref.Reset()
		ids, _ := ref.Tokenizer.EncodeCompletion(p)
		r, err := ref.Generate(context.Background(), engine.Request{Prompt: ids, MaxTokens: 24, IgnoreEOS: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want[p] = r.Text
	}
	s := open(t, dir, o, Options{Queue: 64})
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	client := &http.Client{Transport: tr}
	const clients = 16
	each := 13
	if testing.Short() {
		each = 4
	}
	round := func() (finished, aborted int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for c := range clients {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rnd := rand.New(rand.NewPCG(uint64(c), 1))
				for range each {
					p, stream := prompts[rnd.IntN(len(prompts))], rnd.IntN(2) == 0
					ctx, cancel := context.WithCancel(context.Background())
					if rnd.IntN(3) == 0 {
						time.AfterFunc(time.Duration(rnd.IntN(60))*time.Millisecond, cancel)
					}
					req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":%q,"max_tokens":24,"temperature":0,"ignore_eos":true,"cache_prompt":false,"stream":%v}`, p, stream)))
					resp, err := client.Do(req)
					var b []byte
					if err == nil {
						b, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("a request failed: %v", err)
						}
						mu.Lock()
						aborted++
						mu.Unlock()
						cancel()
						continue
					}
					cancel()
					text := ""
					for _, line := range strings.Split(string(b), "\n") {
						data := strings.TrimPrefix(line, "data: ")
						var w wire
						if data != "" && data != "[DONE]" && json.Unmarshal([]byte(data), &w) == nil {
							for _, ch := range w.Choices {
								text += *ch.Text
							}
						}
					}
					if resp.StatusCode != 200 || text != want[p] {
						t.Errorf("status %d, %q for %q, want %q", resp.StatusCode, text, p, want[p])
					}
					mu.Lock()
					finished++
					mu.Unlock()
				}
			}()
		}
		wg.Wait()
		waitFor(t, "the engine to be free", func() bool { return s.q.len() == 0 && s.m.running.Load() == 0 })
		tr.CloseIdleConnections()
		return finished, aborted
	}
	settle := func() (goroutines, fds int) {
		for range 50 { // connections end in their own time
			if n := runtime.NumGoroutine(); n == goroutines {
				break
			} else {
				goroutines = n
			}
			time.Sleep(100 * time.Millisecond)
		}
		return runtime.NumGoroutine(), descriptors(t)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what the first one finalised
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round()
	g, d := settle()
	h := heap()
	finished, aborted := round()
	g2, d2 := settle()
	if h2 := heap(); h2 > h+512<<10 {
		t.Errorf("the heap grew from %d to %d bytes", h, h2)
	}
	if finished < 2*each || aborted < each/2 {
		t.Errorf("%d finished, %d aborted", finished, aborted)
	}
	if g2 > g || d2 > d {
		t.Errorf("goroutines %d → %d, descriptors %d → %d", g, g2, d, d2)
	}
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.q.room != 65 {
		t.Errorf("%d of 65 places are free", s.q.room)
	}
	t.Logf("%d finished, %d aborted, %d goroutines, %d descriptors", finished, aborted, g2, d2)
}

func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// FuzzBody sends bodies from a client that leaves at once: nothing but a status below 500 or "gone" may come of it.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"prompt":"a","max_tokens":1}`, `{"prompt":[[5,6]],"echo":true,"logprobs":1}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":"a","stop":["a",""],"logit_bias":{"5":1},"n":2,"seed":-1,"top_k":-1}`, `{"prompt":"\ud83d"}`, "\xff\xfe", `{"messages":[{}]}`, `[`, `{"prompt":{}}`,
	} {
		f.Add(s)
	}
	s := open(f, alphaBeta().Bundle(f), engine.Options{}, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h := s.Handler()
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
			req, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1"+path, strings.NewReader(body))
			if err != nil {
				t.Skip()
			}
			rec := &sink{header: http.Header{}}
			h.ServeHTTP(rec, req)
			if rec.status >= 500 {
				t.Errorf("%s %q: %d %s", path, body, rec.status, rec.body)
			}
			if rec.status >= 400 && rec.status != 499 {
				var w wire
				if json.Unmarshal(rec.body, &w) != nil || w.Error == nil {
					t.Errorf("%s %q: %s", path, body, rec.body)
				}
			}
		}
		s.q.mu.Lock()
		defer s.q.mu.Unlock()
		if s.q.room != 17 {
			t.Errorf("%d of 17 places are free", s.q.room)
		}
	})
}

type sink struct {
	header http.Header
	status int
	body   []byte
}

func (s *sink) Header() http.Header    { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }
func (s *sink) Write(b []byte) (int, error) {
	s.body = append(s.body, b...)
	return len(b), nil
}
