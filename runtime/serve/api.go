package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Handler answers every path of the server.
func (s *Server) Handler() http.Handler {
	get := map[string]http.HandlerFunc{"/": s.page, "/healthz": s.health, "/metrics": s.metrics, "/stats": s.stats, "/v1/models": s.models}
	post := map[string]http.HandlerFunc{"/v1/completions": s.completions, "/v1/chat/completions": s.chatCompletions}
	return s.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, allow := get[r.URL.Path], []string{"GET", "HEAD", "OPTIONS"}
		if h == nil && strings.HasPrefix(r.URL.Path, "/v1/models/") {
			h = s.model
		}
		if h == nil {
			h, allow = post[r.URL.Path], []string{"POST", "OPTIONS"}
		}
		switch {
		case h == nil:
			writeError(w, failure(http.StatusNotFound, "invalid_request_error", "unknown_url", "no such path: %s %.200s", r.Method, cleanPath(r.URL.Path)))
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", strings.Join(allow, ", "))
			w.WriteHeader(http.StatusNoContent)
		case !slices.Contains(allow, r.Method):
			w.Header().Set("Allow", strings.Join(allow, ", "))
			writeError(w, failure(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%.20s is not for %s; use %s", r.Method, r.URL.Path, allow[0]))
		default:
			h(w, r)
		}
	}))
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, "ok"
	switch {
	case s.broken.Load():
		status, text = http.StatusServiceUnavailable, "failed"
	case s.ending.Load():
		status, text = http.StatusServiceUnavailable, "shutting down"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"status\":%q}\n", text)
}

// modelInfo is the one model in OpenAI's shape.
type modelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int    `json:"max_model_len"`
}

func (s *Server) info() modelInfo {
	return modelInfo{s.o.Model, "model", s.begun.Unix(), "local", s.e.Context()}
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, map[string]any{"object": "list", "data": []modelInfo{s.info()}})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if e := s.known(strings.TrimPrefix(r.URL.Path, "/v1/models/")); e != nil {
		writeError(w, e)
		return
	}
	writeJSON(w, s.info())
}

func (s *Server) known(model string) *apiError {
	if model == s.o.Model {
		return nil
	}
	e := failure(http.StatusNotFound, "invalid_request_error", "model_not_found", "no model %.100q here; this server has %q", model, s.o.Model)
	param := "model"
	e.Param = &param
	return e
}

// usage counts tokens as OpenAI does: a prompt once, however many answers it gets.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (j *job) usage() *usage {
	u := &usage{Prompt: j.prompted, Completion: j.generated, Total: j.prompted + j.generated}
	u.Details.Cached = j.cached
	return u
}

// shape is one endpoint's way to write answers.
type shape interface {
	whole(j *job) any             // the answer that is not streamed
	begin(choice int) any         // the first chunk of a choice, or nil
	chunk(ev event, j *job) []any // the chunks of a piece
	counted(u *usage) any         // the chunk with the usage
}

func newID(prefix string) string {
	return fmt.Sprintf("%s-%016x%016x", prefix, rand.Uint64(), rand.Uint64())
}

// enter takes a place in the queue and reads the body into fields. release may be called more than once.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (f *fields, release func(), e *apiError) {
	if s.ending.Load() {
		return nil, nil, errStopping
	}
	ok, retry := s.q.enter()
	if !ok {
		e := failure(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "the queue is full: %d requests wait; try again in %d s", s.q.len(), retry)
		e.retryAfter = retry
		return nil, nil, e
	}
	var once sync.Once
	release = func() { once.Do(s.q.leave) }
	body, e := readBody(w, r, s.o.MaxBody)
	if e == nil {
		if f, e = parseFields(body); e == nil {
			return f, release, nil
		}
	}
	release()
	return nil, nil, e
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	f, release, e := s.enter(w, r)
	if e != nil {
		writeError(w, e)
		return
	}
	defer release()
	p := readParams(f, s.e.Config.Vocab, 16, 0, seed)
	p.top = f.int("logprobs", -1, 0, maxTop)
	echo := f.flag("echo", false)
	f.only("suffix", `""`)
	if _, ok := f.m["best_of"]; ok && f.int("best_of", p.n, 1, maxChoices) != p.n {
		f.fail("best_of", "the same as n")
	}
	prompts, e := s.readPrompts(f)
	if e == nil {
		e = f.end()
	}
	s.answerOn(w, r, p, prompts, echo, "prompt", release, e, func(j *job) shape {
		return &completionShape{s: s, id: newID("cmpl"), created: time.Now().Unix(), logprobs: p.top >= 0}
	})
}

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) {
	f, release, e := s.enter(w, r)
	if e != nil {
		writeError(w, e)
		return
	}
	defer release()
	if s.o.Template == nil {
		writeError(w, failure(http.StatusBadRequest, "invalid_request_error", "no_chat_template", "the model has no chat template; use /v1/completions"))
		return
	}
	p := readParams(f, s.e.Config.Vocab, -1, 1, seed)
	wanted, top := f.flag("logprobs", false), f.int("top_logprobs", 0, 0, maxTop)
	if wanted {
		p.top = top
	} else if top > 0 {
		f.fail("top_logprobs", "absent unless logprobs is true")
	}
	f.only("response_format", `{"type":"text"}`)
	f.only("modalities", `["text"]`)
	f.only("tools", "[]")
	f.only("tool_choice", `"none"`, `"auto"`)
	f.only("parallel_tool_calls", "true", "false")
	f.only("service_tier", `"auto"`, `"default"`)
	f.only("store", "false")
	prompts, e := s.readMessages(f)
	if e == nil {
		e = f.end()
	}
	s.answerOn(w, r, p, prompts, false, "messages", release, e, func(j *job) shape {
		return &chatShape{s: s, id: newID("chatcmpl"), created: time.Now().Unix(), logprobs: p.top >= 0}
	})
}

// answerOn checks what is left to check, queues the request, and writes its answer as it comes.
func (s *Server) answerOn(w http.ResponseWriter, r *http.Request, p params, prompts []prompt, echo bool, param string, release func(), e *apiError, make func(j *job) shape) {
	if e == nil && p.model != "" {
		e = s.known(p.model)
	}
	if e == nil && len(prompts)*p.n > maxChoices {
		e = badRequest("n", "%d prompts × %d answers are more than %d", len(prompts), p.n, maxChoices)
	}
	ranked := 0
	for i := 0; e == nil && i < len(prompts); i++ {
		e = s.fits(prompts[i].ids, p.maxTokens, param)
		most := s.e.Context() - len(prompts[i].ids) + 1
		if p.maxTokens >= 0 {
			most = min(most, p.maxTokens)
		}
		if echo {
			most += len(prompts[i].ids)
		}
		ranked += p.n * most * (p.top + 1)
	}
	if e == nil && ranked > maxRanked {
		e = badRequest("logprobs", "the answer may have %d log-probabilities; %d is the most: ask for fewer rivals, tokens or prompts", ranked, maxRanked)
	}
	if e != nil {
		writeError(w, e)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	j := newJob(ctx, p, prompts, echo)
	if !s.q.put(j) {
		writeError(w, errStopping)
		return
	}
	sh := make(j)
	if p.stream {
		s.stream(w, j, sh, cancel, release)
	} else {
		s.wait(w, j, sh, release)
	}
	if rec, ok := w.(*recorder); ok {
		rec.note = fmt.Sprintf(" prompt %d (cached %d) generated %d", j.prompted, j.cached, j.generated)
		if j.err != nil {
			rec.note += " failed: " + strings.ReplaceAll(j.err.Message, "\n", " ")
		}
	}
	if j.err == errGone {
		s.m.aborted.Add(1)
	}
}

// finished waits until the worker is done with j. A client that goes while its request waits takes it out of the queue.
func (s *Server) finished(j *job, release func()) {
	select {
	case <-j.done:
	case <-j.ctx.Done():
		if s.q.remove(j) {
			j.err = errGone
			if s.ctx.Err() != nil {
				j.err = errStopping
			}
			close(j.done)
		} else {
			<-j.done
		}
	}
	release()
}

func (s *Server) wait(w http.ResponseWriter, j *job, sh shape, release func()) {
	s.finished(j, release)
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.pace.write))
	if j.err != nil {
		writeError(w, j.err)
	} else {
		writeJSON(w, sh.whole(j))
	}
	_ = rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{})
}

// stream writes server-sent events. Its headers wait for the first text, for a second at most, so that a request that
// fails at once still gets its status; in silence, comments keep the connection open. Every write has a deadline, the
// stream has none.
func (s *Server) stream(w http.ResponseWriter, j *job, sh shape, cancel func(), release func()) {
	rc := http.NewResponseController(w)
	defer rc.SetWriteDeadline(time.Time{})
	started, failed := false, false
	write := func(b []byte) {
		if failed {
			return
		}
		_ = rc.SetWriteDeadline(time.Now().Add(s.pace.write))
		if _, err := w.Write(b); err != nil {
			failed = true
			cancel()
		}
	}
	flush := func() {
		if !failed && rc.Flush() != nil {
			failed = true
			cancel()
		}
	}
	data := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			b, _ = json.Marshal(map[string]*apiError{"error": toAPI(err)})
		}
		write([]byte("data: " + string(b) + "\n\n"))
	}
	start := func() {
		if started {
			return
		}
		started = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		for i := range j.answers {
			if v := sh.begin(i); v != nil {
				data(v)
			}
		}
	}
	send := func() {
		events := j.box.take()
		if len(events) == 0 {
			return
		}
		start()
		for _, ev := range events {
			for _, v := range sh.chunk(ev, j) {
				data(v)
			}
		}
		flush()
	}
	done := make(chan struct{})
	go func() {
		s.finished(j, release)
		close(done)
	}()
	early, alive := time.NewTimer(s.pace.early), time.NewTicker(s.pace.alive)
	defer early.Stop()
	defer alive.Stop()
	for {
		select {
		case <-j.box.ready:
			send()
		case <-early.C:
			start()
			flush()
		case <-alive.C:
			start()
			write([]byte(": still here\n\n"))
			flush()
		case <-done:
			send()
			switch {
			case j.err == errGone || failed:
			case j.err != nil && !started:
				writeError(w, j.err)
			case j.err != nil:
				data(map[string]*apiError{"error": j.err})
			default:
				start()
				if j.p.withUsage {
					data(sh.counted(j.usage()))
				}
				write([]byte("data: [DONE]\n\n"))
			}
			flush()
			return
		}
	}
}
