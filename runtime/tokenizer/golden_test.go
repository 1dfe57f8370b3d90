package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// golden is one text with what the reference implementation makes of it (testdata/make_tokenizers.py, testdata/make_extra.py).
type golden struct {
	Text    string   `json:"text"`
	IDs     []int32  `json:"ids"`
	Special []int32  `json:"ids_special"`
	Decoded string   `json:"decoded"`
	Stream  []string `json:"stream"` // the text of the first 1, 2, … ids
	Plain   []int32  `json:"ids_plain"`
	All     string   `json:"decoded_all"` // control tokens kept

	RandomIDs     []int32 `json:"random_ids"`
	RandomDecoded string  `json:"random_decoded"`
	RandomAll     string  `json:"random_decoded_all"`
}

func readGolden(t *testing.T, path string) []golden {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []golden
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var g golden
		if err := json.Unmarshal(in.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if err := in.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(all), err)
	}
	return all
}

func load(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestGolden(t *testing.T) {
	root := "testdata"
	if dir := os.Getenv("NP_TOKENIZER_GOLDEN"); dir != "" { // a larger set, made by testdata/make_extra.py
		root = dir
	}
	paths, _ := filepath.Glob(filepath.Join(root, "*/golden*.jsonl"))
	if len(paths) < 4 {
		t.Fatalf("only %d golden files", len(paths))
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			tok := load(t, filepath.Join(filepath.Dir(path), "tokenizer.json"))
			for _, g := range readGolden(t, path) {
				checkGolden(t, tok, g)
			}
		})
	}
}

func checkGolden(t *testing.T, tok *Tokenizer, g golden) {
	t.Helper()
	for range 2 { // without and with what the first round left in the cache
		if got := tok.Encode(g.Text, false); !slices.Equal(got, g.IDs) {
			t.Errorf("%q: ids\n got %v\nwant %v", g.Text, got, g.IDs)
			return
		}
	}
	if got := tok.Encode(g.Text, true); !slices.Equal(got, g.Special) {
		t.Errorf("%q: with specials\n got %v\nwant %v", g.Text, got, g.Special)
	}
	if g.Plain != nil {
		if got := tok.EncodePlain(g.Text); !slices.Equal(got, g.Plain) {
			t.Errorf("%q: plain\n got %v\nwant %v", g.Text, got, g.Plain)
		}
	}
	if got := tok.Decode(g.IDs, true); got != g.Decoded {
		t.Errorf("%q: decoded\n got %q\nwant %q", g.Text, got, g.Decoded)
	}
	if got := tok.Decode(g.IDs, false); g.Plain != nil && got != g.All {
		t.Errorf("%q: decoded with specials\n got %q\nwant %q", g.Text, got, g.All)
	}
	for i, want := range g.Stream {
		if got := tok.Decode(g.IDs[:i+1], true); got != want {
			t.Errorf("%q: first %d ids\n got %q\nwant %q", g.Text, i+1, got, want)
		}
	}
	if g.RandomIDs != nil {
		if got := tok.Decode(g.RandomIDs, true); got != g.RandomDecoded {
			t.Errorf("%v: decoded\n got %q\nwant %q", g.RandomIDs, got, g.RandomDecoded)
		}
		if got := tok.Decode(g.RandomIDs, false); got != g.RandomAll {
			t.Errorf("%v: decoded with specials\n got %q\nwant %q", g.RandomIDs, got, g.RandomAll)
		}
		checkStream(t, tok, g.RandomIDs, true)
	}
	checkStream(t, tok, g.IDs, true)
	checkStream(t, tok, g.IDs, false)
}

// checkStream holds the stream against the whole text of every prefix: nothing is lost, and at most an unfinished character is held back.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32, skip bool) {
	t.Helper()
	s := tok.NewStream(skip)
	sent := ""
	for i, id := range ids {
		sent += s.Push(id)
		if len(s.tail) > 3 || len(s.tail) > 0 && utf8.FullRune(s.tail) {
			t.Fatalf("%v: holds back % x after %d ids", ids, s.tail, i+1)
		}
		whole := tok.Text(ids[:i+1], skip)
		if len(s.tail) == 0 && sent != whole || !strings.HasPrefix(whole, sent) {
			t.Fatalf("%v: after %d ids streamed %q, whole %q", ids, i+1, sent, whole)
		}
	}
	sent += s.Flush()
	if whole := tok.Text(ids, skip); sent != whole {
		t.Fatalf("%v: streamed %q, whole %q", ids, sent, whole)
	}
	// A run of byte tokens that is broken in part is the one place where Decode may differ.
	if whole := tok.Decode(ids, skip); sent != whole && (!tok.decoder.byteFallback || !strings.Contains(whole, "\uFFFD")) {
		t.Fatalf("%v: streamed %q, decoded %q", ids, sent, whole)
	}
}
