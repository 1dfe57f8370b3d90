package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"neuroprefetcher/format"
)

// FuzzVocabulary: no tokenizer.json panics, and the largest id is the largest that can be looked up.
func FuzzVocabulary(f *testing.F) {
	for _, s := range []string{`{"added_tokens":[{"id":2,"content":"x"}],"model":{"type":"BPE","vocab":{"a":0,"b":1}}}`, `{"model":{"vocab":{}}}`,
		`{"model":{"type":"Unigram","vocab":[["a",0]]}}`, `{"added_tokens":[{"content":"x"}],"model":{"vocab":{"a":-1}}}`, `{"model":{"vocab":{"a":1e99}}}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parseVocabulary("f", data)
		if err != nil {
			if !errors.Is(err, format.ErrInput) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if v.last < 0 {
			return
		}
		for s := range v.model {
			if id, ok := v.id(s); !ok || id < 0 {
				t.Fatalf("%q: %d, %v", s, id, ok)
			}
		}
		for _, id := range v.model {
			if id > v.last {
				t.Fatalf("id %d is above the largest, %d", id, v.last)
			}
		}
	})
}
