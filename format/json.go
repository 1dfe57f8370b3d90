package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// CheckJSON reports why data is not exactly one JSON value of UTF-8 text without repeated keys, nested at most
// MaxJSONDepth deep. encoding/json alone takes the last of equal keys and repairs bad UTF-8, so that two readers of one
// file could disagree. The error says nothing of the file; the caller adds it.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8 text")
	}
	type level struct {
		keys  map[string]struct{} // nil for an array
		key   string              // the key whose value comes next
		isKey bool                // a key, not a value, comes next
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for n := 0; ; n++ {
		if n > 0 && len(stack) == 0 {
			rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")
			if len(rest) > 0 {
				return fmt.Errorf("data after the end of the JSON value: %s", quoted(rest))
			}
			return nil
		}
		tok, err := dec.Token()
		if err != nil {
			return jsonError(err)
		}
		top := len(stack) - 1
		if d, ok := tok.(json.Delim); ok {
			switch d {
			case '{', '[':
				if len(stack) == MaxJSONDepth {
					return fmt.Errorf("JSON nested deeper than %d levels", MaxJSONDepth)
				}
				if top >= 0 {
					stack[top].isKey = stack[top].keys != nil
				}
				l := level{}
				if d == '{' {
					l.keys, l.isKey = map[string]struct{}{}, true
				}
				stack = append(stack, l)
			default:
				stack = stack[:top]
			}
			continue
		}
		if top < 0 || stack[top].keys == nil {
			continue
		}
		l := &stack[top]
		if !l.isKey {
			l.isKey = true
			continue
		}
		k, _ := tok.(string)
		if _, dup := l.keys[k]; dup {
			if top > 0 && stack[top-1].keys != nil {
				return fmt.Errorf("duplicate key %q in %q", k, stack[top-1].key)
			}
			return fmt.Errorf("duplicate key %q", k)
		}
		l.keys[k] = struct{}{}
		l.key, l.isKey = k, false
	}
}

// JSONObject splits an object into its values after CheckJSON. Keys are taken exactly as written.
func JSONObject(data []byte) (map[string]json.RawMessage, error) {
	if err := CheckJSON(data); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil || m == nil {
		return nil, fmt.Errorf("not a JSON object: %s", quoted(bytes.TrimSpace(data)))
	}
	return m, nil
}

func jsonError(err error) error {
	var syn *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("JSON ends too early")
	case errors.As(err, &syn):
		return fmt.Errorf("JSON syntax error at byte %d: %v", syn.Offset, err)
	}
	return fmt.Errorf("bad JSON: %v", err)
}

// quoted shows the first bytes of b.
func quoted(b []byte) string {
	if len(b) > 24 {
		return fmt.Sprintf("%q...", b[:24])
	}
	return fmt.Sprintf("%q", b)
}
