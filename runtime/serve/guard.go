package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	note   string // for the log
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// guarded logs, counts, and lets nobody in who may not.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec, start := &recorder{ResponseWriter: w}, time.Now()
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				fmt.Fprintf(s.o.Log, "panic in a request: %v\n%s", p, debug.Stack())
				if rec.status == 0 {
					writeError(rec, failure(http.StatusInternalServerError, "server_error", "internal", "the server has failed; see its log"))
				}
			}
			s.m.request(r.URL.Path, rec.status)
			if r.URL.Path != "/stats" && r.URL.Path != "/healthz" && r.URL.Path != "/metrics" {
				fmt.Fprintf(s.o.Log, "%s %s %d %.3fs%s\n", r.Method, cleanPath(r.URL.Path), rec.status, time.Since(start).Seconds(), rec.note)
			}
		}()
		h := rec.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if e := s.admit(rec, r); e != nil {
			writeError(rec, e)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

// cleanPath keeps a log line one line.
func cleanPath(p string) string {
	if len(p) > 200 {
		p = p[:200]
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, p)
}

// admit checks host, origin and key. The page and the health check need no key: they tell nothing.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) *apiError {
	if s.o.Loopback && len(s.o.Keys) == 0 && !s.localHost(r.Host) {
		return failure(http.StatusForbidden, "invalid_request_error", "host_not_allowed", "the host %.100q is not this machine; a web page may be reaching for the server by another name", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Add("Vary", "Origin")
		switch {
		case slices.Contains(s.o.Origins, "*") || slices.Contains(s.o.Origins, origin):
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
				h.Set("Access-Control-Max-Age", "600")
			}
		case !sameHost(origin, r.Host) && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions:
			return failure(http.StatusForbidden, "invalid_request_error", "origin_not_allowed", "the origin %.100q may not use this server; it was started without --allow-origin for it", origin)
		}
	}
	if len(s.o.Keys) == 0 || r.Method == http.MethodOptions || r.URL.Path == "/" || r.URL.Path == "/healthz" {
		return nil
	}
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return failure(http.StatusUnauthorized, "authentication_error", "missing_api_key", "no API key; send it as: Authorization: Bearer KEY")
	}
	given, match := sha256.Sum256([]byte(strings.TrimSpace(key))), 0
	for _, k := range s.o.Keys {
		want := sha256.Sum256([]byte(k))
		match |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	if match == 0 {
		return failure(http.StatusUnauthorized, "authentication_error", "invalid_api_key", "the API key is not one of this server's")
	}
	return nil
}

func (s *Server) localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	for _, o := range s.o.Origins {
		if u, err := url.Parse(o); err == nil && u.Hostname() != "" && strings.EqualFold(u.Hostname(), host) {
			return true
		}
	}
	return false
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// limited is a listener that has at most so many connections open.
type limited struct {
	net.Listener
	places chan struct{}
	done   chan struct{}
	once   sync.Once
}

func limitConns(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, n), done: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, free: func() { <-l.places }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	once sync.Once
	free func()
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
