package tokenizer

import (
	"runtime"
	"strings"
	"testing"
)

// TestMemoryOfOneWord holds what MaxText promises: a text without a single split allocates, garbage included, no more
// than 48 bytes for each of its bytes.
func TestMemoryOfOneWord(t *testing.T) {
	tok, err := Load("testdata/smollm2/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 18
	text := strings.Repeat(" ", n)
	tok.Encode("warm", false)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ids := tok.Encode(text, false)
	runtime.ReadMemStats(&after)
	if got := tok.Decode(ids, false); got != text {
		t.Errorf("%d tokens decode to %d bytes", len(ids), len(got))
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 48*n {
		t.Errorf("%.1f bytes allocated for each byte of text", float64(got)/n)
	}
}
