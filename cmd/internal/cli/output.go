package clix

import (
	"encoding/json"
	"io"
)

// WriteJSON writes one JSON document, indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
