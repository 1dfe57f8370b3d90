package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
)

// chain runs a ← b ← c with the given content of a's output; c reads both.
func chain(t *testing.T, work, text string, only ...string) error {
	t.Helper()
	e := &Env{Work: work}
	for _, s := range []struct {
		name  string
		reads []string
	}{{"a", nil}, {"b", []string{"a"}}, {"c", []string{"a", "b"}}} {
		if len(only) > 0 && !strings.Contains(strings.Join(only, " "), s.name) {
			continue
		}
		spec := Spec{Name: s.name, Reads: s.reads, Params: text + s.name}
		for _, r := range s.reads {
			out, err := e.Outputs(r)
			if err != nil {
				t.Fatal(err)
			}
			spec.Inputs = append(spec.Inputs, out["out"])
		}
		_, err := Run(context.Background(), e, spec, func(_ context.Context, dir string, _ *Progress) (map[string]any, error) {
			return nil, os.WriteFile(filepath.Join(dir, "out"), []byte(text+s.name), 0o666)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A stage does not read what another did not write, and nothing is begun.
func TestDamageIsNotPassedOn(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"changed":     func(p string) error { return os.WriteFile(p, []byte("onez"), 0o666) },
		"longer":      func(p string) error { return os.WriteFile(p, []byte("one and more"), 0o666) },
		"gone":        os.Remove,
		"a directory": func(p string) error { os.Remove(p); return os.Mkdir(p, 0o777) },
	} {
		work := t.TempDir()
		if err := chain(t, work, "one", "a"); err != nil {
			t.Fatal(err)
		}
		if err := damage(filepath.Join(work, "a", "out")); err != nil {
			t.Fatal(err)
		}
		err := chain(t, work, "one", "b")
		if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "out") || !strings.Contains(format.HintOf(err), "npprep a again") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(work, "b")); err == nil {
			t.Errorf("%s: the reading stage was begun", name)
		}
		if err := chain(t, work, "one"); err != nil {
			t.Errorf("%s: all again: %v", name, err)
		}
	}
}

// Stages run one by one do not mix what belongs to different runs.
func TestStaleStagesAreNotMixed(t *testing.T) {
	work := t.TempDir()
	if err := chain(t, work, "one"); err != nil {
		t.Fatal(err)
	}
	if err := chain(t, work, "two", "a"); err != nil {
		t.Fatal(err)
	}
	err := chain(t, work, "two", "c")
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "stage b was made from another a") {
		t.Errorf("%v", err)
	}
	if err := chain(t, work, "two"); err != nil {
		t.Error(err)
	}
	// the same bytes made again are the same
	if err := os.RemoveAll(filepath.Join(work, "a")); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(work, "c"))
	if err := chain(t, work, "two", "a", "c"); err != nil {
		t.Error(err)
	}
}

func TestMadeFrom(t *testing.T) {
	work := t.TempDir()
	in := filepath.Join(t.TempDir(), "in")
	os.WriteFile(in, []byte("one"), 0o666)
	e := &Env{Work: work}
	ctx := context.Background()
	if err := e.MadeFrom(ctx, "s", in); !errors.Is(err, format.ErrInput) {
		t.Errorf("never run: %v", err)
	}
	runs := 0
	if _, err := Run(ctx, e, Spec{Name: "s", Inputs: []string{in}}, counted(&runs, nil)); err != nil {
		t.Fatal(err)
	}
	if err := e.MadeFrom(ctx, "s", in); err != nil {
		t.Error(err)
	}
	os.WriteFile(in, []byte("two"), 0o666)
	if err := e.MadeFrom(ctx, "s", in); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), in) {
		t.Errorf("another file: %v", err)
	}
}

// Any bit of a record that changes makes the stage run again: its values go into bundles and reports.
func TestDamagedRecordIsNoRecord(t *testing.T) {
	work := t.TempDir()
	runs := 0
	if _, err := Run(context.Background(), &Env{Work: work}, Spec{Name: "s", Params: map[string]int{"a": 1}}, counted(&runs, map[string]string{"out": "x"})); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(work, "s", recordFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if readRecord(filepath.Dir(path)) == nil {
		t.Fatalf("refused as written: %s", good)
	}
	name := strings.Index(string(good), `"sha256"`)
	for i := range good {
		if i > name && i < name+len(`"sha256"`) {
			continue // a record with another key there is one of those without a checksum
		}
		for _, bit := range []byte{1, 4, 0x20} {
			bad := append([]byte{}, good...)
			bad[i] ^= bit
			if err := os.WriteFile(path, bad, 0o666); err != nil {
				t.Fatal(err)
			}
			if readRecord(filepath.Dir(path)) != nil {
				t.Errorf("byte %d, %q as %q: taken", i, good[i], bad[i])
			}
		}
	}
}
