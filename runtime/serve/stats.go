package serve

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neuroprefetcher/runtime/engine"
)

// metrics is what the worker and the requests count. The engine's counts are copied after every token, for the engine
// itself is the worker's.
type metrics struct {
	running, generated, cached, aborted atomic.Int64

	mu       sync.Mutex
	engine   engine.Stats
	layers   []engine.LayerRows // one per layer
	sequence int                // tokens in the cache
	rate     float64            // tokens per second, a moving average over steps
	requests map[string]int64   // path and status
}

func (m *metrics) init(e *engine.Engine) {
	m.layers = make([]engine.LayerRows, e.Config.Layers)
	m.requests = map[string]int64{}
}

// request counts an answered request; paths that are not ours share one name.
func (m *metrics) request(path string, status int) {
	switch path {
	case "/v1/completions", "/v1/chat/completions":
	case "/v1/models", "/healthz", "/metrics", "/stats", "/":
	default:
		path = "other"
	}
	m.mu.Lock()
	m.requests[fmt.Sprintf("path=%q,code=\"%d\"", path, status)]++
	m.mu.Unlock()
}

func (s *Server) afterPrompt() {
	s.m.mu.Lock()
	s.m.engine, s.m.sequence = s.e.Stats(), s.e.Len()
	s.m.mu.Unlock()
}

func (s *Server) afterStep() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now := s.e.Stats()
	if took := (now.Total - s.m.engine.Total).Seconds(); took > 0 {
		if s.m.rate == 0 {
			s.m.rate = 1 / took
		}
		s.m.rate = 1 / (0.9/s.m.rate + 0.1*took)
	}
	s.m.engine, s.m.sequence = now, s.e.Len()
	s.e.AddLayerRows(s.m.layers)
}

// layerStats is one layer of the panel.
type layerStats struct {
	Dense  bool     `json:"dense"` // its MLP is in memory
	Needed int64    `json:"rows_needed"`
	Read   int64    `json:"rows_read"`
	Reuse  *float64 `json:"reuse"` // null until it has computed something sparse
}

// serverStats is /stats: what the panel shows. Times are in seconds since the start, sizes in bytes.
type serverStats struct {
	Model    string  `json:"model"`
	Chat     bool    `json:"chat"`
	Version  string  `json:"version"`
	Uptime   float64 `json:"uptime_s"`
	Mode     string  `json:"mode"`
	Selector string  `json:"selector"`
	Dense    int     `json:"d"`
	KMax     int     `json:"k_max"`
	Neurons  int     `json:"neurons"`
	Context  int     `json:"context"`
	Sequence int     `json:"context_used"`
	IO       struct {
		Backend string `json:"backend"`
		Direct  bool   `json:"direct"`
		Depth   int    `json:"queue_depth"`
	} `json:"io"`
	Memory struct {
		Budget int64         `json:"budget"`
		Source string        `json:"source"`
		RSS    int64         `json:"rss"`
		Peak   int64         `json:"peak_rss"`
		Model  int64         `json:"model"`
		Parts  []engine.Part `json:"plan"`
	} `json:"memory"`
	Layers   []layerStats `json:"layers"`
	Requests struct {
		Running int64 `json:"running"`
		Queued  int   `json:"queued"`
		Places  int   `json:"places"`
		Aborted int64 `json:"aborted"`
	} `json:"requests"`
	Tokens struct {
		Prompt    int   `json:"prompt"`
		Cached    int64 `json:"cached"`
		Generated int64 `json:"generated"`
		Steps     int   `json:"steps"`
	} `json:"tokens"`
	TokPerS float64 `json:"tok_per_s"`
	Time    struct {
		Prompt  float64 `json:"prompt"`
		IOWait  float64 `json:"io_wait"`
		Compute float64 `json:"compute"`
		Predict float64 `json:"predict"`
		Other   float64 `json:"other"`
		Steps   float64 `json:"steps"`
	} `json:"time"`
	Read struct {
		Prompt int64   `json:"prompt_bytes"`
		Steps  int64   `json:"step_bytes"`
		Reads  int64   `json:"step_reads"`
		Reuse  float64 `json:"reuse"`
		Needed int64   `json:"rows_needed"`
		Rows   int64   `json:"rows_read"`
	} `json:"read"`
}

func (s *Server) collect() serverStats {
	m, p, io := &s.m, s.e.Plan, s.e.IO()
	var r serverStats
	r.Model, r.Chat, r.Version, r.Uptime = s.o.Model, s.o.Template != nil, s.o.Version, time.Since(s.begun).Seconds()
	r.Mode, r.Selector, r.Dense, r.KMax, r.Context = p.Mode, s.e.SelectorName(), p.Dense, p.KMax, p.Context
	r.Neurons = s.e.Config.Intermediate
	r.IO.Backend, r.IO.Direct, r.IO.Depth = io.Backend, io.Direct, io.QueueDepth
	r.Memory.Budget, r.Memory.Source, r.Memory.Model, r.Memory.Parts = p.Budget, p.BudgetSource, p.Weights, p.Parts
	r.Memory.RSS, r.Memory.Peak = engine.RSS()
	r.Requests.Running, r.Requests.Queued, r.Requests.Places, r.Requests.Aborted = m.running.Load(), s.q.len(), s.o.Queue, m.aborted.Load()
	r.Tokens.Cached, r.Tokens.Generated = m.cached.Load(), m.generated.Load()
	m.mu.Lock()
	st, layers := m.engine, slices.Clone(m.layers)
	r.Sequence, r.TokPerS = m.sequence, m.rate
	m.mu.Unlock()
	r.Tokens.Prompt, r.Tokens.Steps = st.Prompt, st.Tokens
	t := &r.Time
	t.Prompt, t.IOWait, t.Compute, t.Predict, t.Other, t.Steps = st.PrefillTime.Seconds(), st.IOWait.Seconds(), st.Compute.Seconds(), st.Predict.Seconds(), st.Other().Seconds(), st.Total.Seconds()
	r.Read.Prompt, r.Read.Steps, r.Read.Reads = st.PrefillIO.Bytes, st.StepIO.Bytes, st.StepIO.Reads
	r.Read.Reuse, r.Read.Needed, r.Read.Rows = st.Reuse(), st.Needed, st.Read
	for l, c := range layers {
		x := layerStats{Dense: l < p.Dense, Needed: c.Needed, Read: c.Read}
		if c.Needed > 0 {
			reuse := 1 - float64(c.Read)/float64(c.Needed)
			x.Reuse = &reuse
		}
		r.Layers = append(r.Layers, x)
	}
	return r
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request) { writeJSON(w, s.collect()) }

// metrics answers in the text format of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	c := s.collect()
	var b strings.Builder
	one := func(kind, name, help string, v any) {
		fmt.Fprintf(&b, "# HELP nprun_%s %s\n# TYPE nprun_%s %s\nnprun_%s %v\n", name, help, name, kind, name, v)
	}
	fmt.Fprintf(&b, "# HELP nprun_info What is served.\n# TYPE nprun_info gauge\nnprun_info{model=%q,mode=%q,selector=%q,io=%q,version=%q} 1\n", c.Model, c.Mode, c.Selector, c.IO.Backend, c.Version)
	b.WriteString("# HELP nprun_requests_total Answered requests.\n# TYPE nprun_requests_total counter\n")
	s.m.mu.Lock()
	var names []string
	for k := range s.m.requests {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		fmt.Fprintf(&b, "nprun_requests_total{%s} %d\n", k, s.m.requests[k])
	}
	s.m.mu.Unlock()
	one("counter", "requests_aborted_total", "Requests whose client left.", c.Requests.Aborted)
	one("gauge", "requests_running", "Requests that the engine works on.", c.Requests.Running)
	one("gauge", "requests_queued", "Requests that wait.", c.Requests.Queued)
	one("gauge", "queue_places", "Requests that can wait.", c.Requests.Places)
	one("counter", "prompt_tokens_total", "Prompt tokens that were run.", c.Tokens.Prompt)
	one("counter", "prompt_tokens_cached_total", "Prompt tokens that were in the cache.", c.Tokens.Cached)
	one("counter", "generated_tokens_total", "Generated tokens.", c.Tokens.Generated)
	one("gauge", "tokens_per_second", "Speed of generation, a moving average.", c.TokPerS)
	one("counter", "prompt_seconds_total", "Time spent on prompts.", c.Time.Prompt)
	b.WriteString("# HELP nprun_step_seconds_total Time spent on generated tokens.\n# TYPE nprun_step_seconds_total counter\n")
	for _, x := range []struct {
		name string
		v    float64
	}{{"io_wait", c.Time.IOWait}, {"compute", c.Time.Compute}, {"predict", c.Time.Predict}, {"other", c.Time.Other}} {
		fmt.Fprintf(&b, "nprun_step_seconds_total{part=%q} %v\n", x.name, x.v)
	}
	b.WriteString("# HELP nprun_read_bytes_total Bytes read from the bundle.\n# TYPE nprun_read_bytes_total counter\n")
	fmt.Fprintf(&b, "nprun_read_bytes_total{for=\"prompt\"} %d\nnprun_read_bytes_total{for=\"step\"} %d\n", c.Read.Prompt, c.Read.Steps)
	one("counter", "step_reads_total", "Reads for generated tokens.", c.Read.Reads)
	one("counter", "rows_needed_total", "Rows that sparse layers computed.", c.Read.Needed)
	one("counter", "rows_read_total", "Rows that were read for them.", c.Read.Rows)
	one("gauge", "reuse_ratio", "1 - rows read / rows needed, since the start.", c.Read.Reuse)
	one("gauge", "context_tokens", "Longest sequence.", c.Context)
	one("gauge", "context_used_tokens", "Tokens in the cache.", c.Sequence)
	one("gauge", "memory_budget_bytes", "Budget of the whole process.", c.Memory.Budget)
	one("gauge", "resident_memory_bytes", "Resident memory.", c.Memory.RSS)
	one("gauge", "resident_memory_peak_bytes", "Peak of the resident memory.", c.Memory.Peak)
	one("gauge", "goroutines", "Goroutines.", runtime.NumGoroutine())
	one("gauge", "uptime_seconds", "Time since the start.", c.Uptime)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write([]byte(b.String()))
}
