package serve

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var pageHTML []byte

// page serves the one page. It loads nothing from anywhere else, and is told so.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	w.Write(pageHTML)
}
