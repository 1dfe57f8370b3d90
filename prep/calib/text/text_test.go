package text

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
)

const tiny = "../../../pipelines/tiny/checkpoint"

func write(t *testing.T, parts ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i, p := range parts {
		name := filepath.Join(dir, string(rune('a'+i))+".txt")
		if err := os.WriteFile(name, []byte(p), 0o666); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestJoined asks that files are one text, even cut inside a word, and that a token's file is found.
func TestJoined(t *testing.T) {
	c, err := checkpoint.Open(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	whole, parts := write(t, "the little boat went over the water é and came home"), write(t, "the little bo", "at went over the wat", "", "er \xc3", "\xa9 and came home")
	a, err := Load(c, whole)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(c, parts)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a.Tokens, b.Tokens) || a.Hash != b.Hash {
		t.Errorf("split text gives other tokens or another hash: %v, %v", a.Tokens, b.Tokens)
	}
	if h, err := Hash(parts); err != nil || h != a.Hash {
		t.Errorf("Hash: %v, %v", h, err)
	}
	last := 0
	for i := range b.Tokens {
		at := 0
		for parts[at] != b.Source(i) {
			at++
		}
		if at < last {
			t.Errorf("token %d is said to be in file %d, the one before in %d", i, at, last)
		}
		last = at
	}
	if b.Source(0) != parts[0] || b.Source(len(b.Tokens)-1) != parts[4] {
		t.Errorf("first and last token: %s, %s", b.Source(0), b.Source(len(b.Tokens)-1))
	}
	if ws, err := a.Cut(len(a.Tokens), 4); err != nil || ws[0].Len > 4 {
		t.Errorf("Cut: %v, %v", ws, err)
	}
	if _, err := a.Cut(len(a.Tokens)+1, 4); !errors.Is(err, format.ErrInput) || format.HintOf(err) == "" {
		t.Errorf("a token too few: %v", err)
	}
}

func TestRefused(t *testing.T) {
	bad := write(t, "good", "bad \xff text")
	if _, err := Hash(bad); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), bad[1]) {
		t.Errorf("not UTF-8: %v", err)
	}
	for name, files := range map[string][]string{"none": nil, "missing": {bad[0] + "x"}, "a folder": {filepath.Dir(bad[0])}} {
		if _, err := Hash(files); !errors.Is(err, format.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
