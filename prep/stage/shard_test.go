package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neuroprefetcher/format"
)

func TestParseShard(t *testing.T) {
	if s, err := ParseShard("2/3"); err != nil || s != (Shard{2, 3}) {
		t.Errorf("2/3: %v, %v", s, err)
	}
	for _, bad := range []string{"", "2", "0/3", "4/3", "-1/3", "1/0", "1/10000", "a/3", "1/b", "1/2/3", "1.5/2"} {
		if s, err := ParseShard(bad); err == nil {
			t.Errorf("%q: %v", bad, s)
		}
	}
}

// TestCut asks that the shards cover every unit once, in order, and that none is empty.
func TestCut(t *testing.T) {
	for units := 1; units < 30; units++ {
		for n := 1; n <= units; n++ {
			at := 0
			for i := 1; i <= n; i++ {
				lo, hi, err := Shard{i, n}.Cut(units, "parts")
				if err != nil || lo != at || hi <= lo {
					t.Fatalf("shard %d/%d of %d: %d..%d, %v", i, n, units, lo, hi, err)
				}
				at = hi
			}
			if at != units {
				t.Fatalf("%d shards cover %d of %d", n, at, units)
			}
		}
	}
	if _, _, err := (Shard{1, 4}).Cut(3, "parts"); !errors.Is(err, format.ErrInput) {
		t.Errorf("more shards than parts: %v", err)
	}
}

// sharded is a stage whose output is the concatenation of its shards' letters.
func sharded(e *Env, shard Shard, params string) (Report, error) {
	s := Spec{Name: "s", Version: 1, Params: params, Shard: shard,
		Merge: func(_ context.Context, dir string, shards []Part, _ *Progress) (map[string]any, error) {
			var all []byte
			n := 0
			for _, part := range shards {
				b, err := os.ReadFile(filepath.Join(part.Dir, "out"))
				if err != nil {
					return nil, err
				}
				all, n = append(all, b...), n+part.Int("letters")
			}
			return map[string]any{"letters": n}, os.WriteFile(filepath.Join(dir, "out"), all, 0o666)
		}}
	return Run(context.Background(), e, s, func(_ context.Context, dir string, _ *Progress) (map[string]any, error) {
		lo, hi, err := shard.Cut(26, "letters")
		if err != nil {
			return nil, err
		}
		return map[string]any{"letters": hi - lo}, os.WriteFile(filepath.Join(dir, "out"), []byte("abcdefghijklmnopqrstuvwxyz"[lo:hi]), 0o666)
	})
}

func run3(t *testing.T, work, params string, which ...int) {
	t.Helper()
	for _, i := range which {
		r, err := sharded(&Env{Work: work}, Shard{i, 3}, params)
		if err != nil || r.Stage != fmt.Sprintf("s %d/3", i) {
			t.Fatalf("shard %d: %+v, %v", i, r, err)
		}
	}
}

func TestShardsAreMerged(t *testing.T) {
	work := t.TempDir()
	run3(t, work, "p", 2, 3, 1)
	r, err := sharded(&Env{Work: work}, Shard{}, "p")
	if err != nil || r.Values["letters"] != 26 {
		t.Fatalf("merge: %+v, %v", r, err)
	}
	b, _ := os.ReadFile(filepath.Join(work, "s", "out"))
	if string(b) != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("merged %q", b)
	}
	// The same key as without shards: with them gone, it is up to date.
	for i := range 3 {
		os.RemoveAll(filepath.Join(work, fmt.Sprintf("s.%dof3", i+1)))
	}
	if r, err := sharded(&Env{Work: work}, Shard{}, "p"); err != nil || !r.Skipped {
		t.Errorf("without the shards: skipped %v, %v", r.Skipped, err)
	}
	run3(t, work, "p", 1)
	if r, err := sharded(&Env{Work: work}, Shard{1, 3}, "p"); err != nil || !r.Skipped {
		t.Errorf("a shard again: skipped %v, %v", r.Skipped, err)
	}
}

// Shards that are not one whole are refused, each with what is wrong.
func TestShardsRefused(t *testing.T) {
	refused := func(what, work, params string, words ...string) {
		t.Helper()
		_, err := sharded(&Env{Work: work}, Shard{}, params)
		if !errors.Is(err, format.ErrInput) || format.HintOf(err) == "" {
			t.Fatalf("%s: %v", what, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", what, err, w)
			}
		}
		if _, err := os.Stat(filepath.Join(work, "s")); err == nil {
			t.Errorf("%s: the stage was begun", what)
		}
	}
	work := t.TempDir()
	run3(t, work, "p", 1, 3)
	refused("a missing one", work, "p", "shard 2/3 is missing")
	run3(t, work, "q", 2)
	refused("other parameters", work, "p", "s.2of3", `"q", not "p"`)
	run3(t, work, "p", 2)
	if _, err := sharded(&Env{Work: work}, Shard{1, 2}, "p"); err != nil {
		t.Fatal(err)
	}
	refused("two cuts", work, "p", "shards of 3 beside shards of 2")
	os.RemoveAll(filepath.Join(work, "s.1of2"))
	out := filepath.Join(work, "s.2of3", "out")
	os.WriteFile(out, []byte("ABCDEFGHI"), 0o666)
	refused("a damaged one", work, "p", "s.2of3", "checksum")
	run3(t, work, "p", 2)
	os.Rename(filepath.Join(work, "s.1of3"), filepath.Join(work, "x"))
	os.Rename(filepath.Join(work, "s.3of3"), filepath.Join(work, "s.1of3"))
	refused("one under another's name", work, "p", "s.1of3", "3/3")
	os.Rename(filepath.Join(work, "s.1of3"), filepath.Join(work, "s.3of3"))
	os.Rename(filepath.Join(work, "x"), filepath.Join(work, "s.1of3"))
	os.Remove(filepath.Join(work, "s.3of3", "stage.json"))
	refused("an unfinished one", work, "p", "shard 3/3 is missing or not finished")
	run3(t, work, "p", 3)
	if _, err := sharded(&Env{Work: work}, Shard{}, "p"); err != nil {
		t.Error(err)
	}
}

// Shards share a work folder; a whole stage and a second run of the same shard do not.
func TestShardLocks(t *testing.T) {
	work := t.TempDir()
	a, b, c, d := &Env{Work: work}, &Env{Work: work}, &Env{Work: work}, &Env{Work: work}
	one, err := a.lockFor(&Spec{Name: "s", Shard: Shard{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.lockFor(&Spec{Name: "s", Shard: Shard{2, 2}})
	if err != nil {
		t.Fatalf("another shard: %v", err)
	}
	if _, err := c.lockFor(&Spec{Name: "s", Shard: Shard{1, 2}}); !errors.Is(err, format.ErrInput) {
		t.Errorf("the same shard: %v", err)
	}
	if _, err := d.lockFor(&Spec{Name: "s"}); !errors.Is(err, format.ErrInput) {
		t.Errorf("the whole: %v", err)
	}
	one()
	two()
	whole, err := d.lockFor(&Spec{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer whole()
	if _, err := c.lockFor(&Spec{Name: "s", Shard: Shard{1, 2}}); !errors.Is(err, format.ErrInput) {
		t.Errorf("a shard beside the whole: %v", err)
	}
}
