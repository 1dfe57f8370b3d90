package synthetic

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format/bundle"
)

// small is a shape that is written in no time: five layers of 416 neurons, whose last mask word is not full.
var small = Shape{"small", 5, 64, 416, 4, 2, 16, 700, 512, 1e4, 160}

func ensure(t testing.TB, dir string, seed uint64) (path string, made bool) {
	t.Helper()
	path, made, err := Ensure(context.Background(), dir, small, seed, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return path, made
}

func TestBundleIsWhole(t *testing.T) {
	dir := t.TempDir()
	path, made := ensure(t, dir, 1)
	if !made {
		t.Fatal("nothing was there, and nothing was made")
	}
	b, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, m := range b.Manifest.Members {
		total += m.Size
	}
	if want, err := Size(small); err != nil || total > want || total < want-(65<<20) {
		t.Errorf("%d bytes, Size says %d, %v", total, want, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBundleIsReusedAndReplaced(t *testing.T) {
	dir := t.TempDir()
	path, _ := ensure(t, dir, 1)
	sum := func() string {
		b, err := bundle.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := b.Manifest.Member(bundle.MemberRows)
		return m.SHA256
	}
	one := sum()
	if _, made := ensure(t, dir, 1); made {
		t.Error("the same parameters made the bundle again")
	}
	if _, made := ensure(t, dir, 2); !made || sum() == one {
		t.Error("another seed must replace the bundle")
	}
	if _, made := ensure(t, dir, 1); !made || sum() != one {
		t.Error("the same seed must give the same bytes")
	}
	// A damaged one is written anew.
	if err := os.Truncate(filepath.Join(path, bundle.MemberResident), 100); err != nil {
		t.Fatal(err)
	}
	if _, made := ensure(t, dir, 1); !made {
		t.Error("a damaged bundle was reused")
	}
}

func TestBundleRefusals(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path, _ := ensure(t, dir, 1)
	manifest := filepath.Join(path, bundle.MemberManifest)
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	real := strings.ReplaceAll(string(data), `"synthetic": "small"`, `"text": "x"`)
	if real == string(data) {
		t.Fatal("the manifest does not say that it is synthetic")
	}
	if err := os.WriteFile(manifest, []byte(real), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Ensure(ctx, dir, small, 1, "test", nil); err == nil || !strings.Contains(err.Error(), "not synthetic") {
		t.Errorf("a real bundle in the place: %v", err)
	}
	other := t.TempDir()
	if err := os.MkdirAll(filepath.Join(other, "small"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "small", "thesis.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Ensure(ctx, other, small, 1, "test", nil); err == nil {
		t.Error("a folder with other things was replaced")
	}
	huge := small
	huge.Layers, huge.Intermediate, huge.Hidden, huge.Heads, huge.KVHeads, huge.HeadDim = 1024, 65536, 65536, 16, 16, 4096 // 26 TB
	third := t.TempDir()
	if _, _, err := Ensure(ctx, third, huge, 1, "test", nil); err == nil || !strings.Contains(err.Error(), "TiB") {
		t.Errorf("no room: %v", err)
	}
	if ents, _ := os.ReadDir(third); len(ents) > 0 {
		t.Errorf("a refusal left %v", ents)
	}
	if _, err := ShapeOf("gpt-5"); err == nil || !strings.Contains(err.Error(), "mistral-7b") {
		t.Errorf("unknown shape: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	fourth := t.TempDir()
	if _, _, err := Ensure(cancelled, fourth, small, 1, "test", nil); err == nil {
		t.Error("a cancelled run made a bundle")
	}
	if ents, _ := os.ReadDir(fourth); len(ents) > 0 {
		t.Errorf("a cancelled run left %v", ents)
	}
}

// TestShapes holds the sizes of the named shapes against what is published for the models.
func TestShapes(t *testing.T) {
	for name, want := range map[string]float64{"mistral-7b": 7.24e9, "llama-3-8b": 8.03e9, "tinyllama-1.1b": 1.10e9} {
		s, err := ShapeOf(name)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := s.config()
		if err != nil {
			t.Fatal(err)
		}
		h := float64(c.Hidden)
		n := 2*float64(c.Vocab)*h + h + float64(c.Layers)*(2*h*h+2*h*float64(c.KVHeads*c.HeadDim)+3*h*float64(c.Intermediate)+2*h)
		if n < 0.995*want || n > 1.005*want {
			t.Errorf("%s: %.3g parameters, want %.3g", name, n, want)
		}
	}
}
