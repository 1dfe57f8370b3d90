package clix

import (
	"encoding/json"
	"io"

	"neuroprefetcher/format"
)

// Output is a writer of results that remembers that it could not write, so that a result that got lost is a failed run.
type Output struct {
	W   io.Writer
	Err error // the first failure
}

func (o *Output) Write(b []byte) (int, error) {
	if o.Err != nil {
		return 0, o.Err
	}
	n, err := o.W.Write(b)
	if err != nil {
		o.Err = format.IOf("writing the result: %w", err)
	}
	return n, o.Err
}

// WriteJSON writes one JSON document, indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
