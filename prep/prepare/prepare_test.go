package prepare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/prep/stage"
)

func open(t *testing.T) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(ct.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A dense bundle leaves calibration out; a second run does nothing.
func TestDenseOrder(t *testing.T) {
	o := Options{Checkpoint: open(t), Out: filepath.Join(t.TempDir(), "b.np"), Dense: true, Tool: "test"}
	work := t.TempDir()
	for _, again := range []bool{false, true} {
		rs, err := Run(context.Background(), &stage.Env{Work: work}, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(rs) != 2 || rs[0].Stage != "repack" || rs[1].Stage != "bundle" || rs[0].Skipped != again || rs[1].Skipped != again {
			t.Errorf("%+v", rs)
		}
	}
}

// What the last stage would refuse is refused before the first one runs.
func TestRefusedBeforeTheFirstStage(t *testing.T) {
	work := filepath.Join(t.TempDir(), "w")
	_, err := Run(context.Background(), &stage.Env{Work: work}, Options{Checkpoint: open(t), Out: filepath.Join(t.TempDir(), "b.np"), KMax: 97})
	if !errors.Is(err, format.ErrInput) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(work); err == nil {
		t.Error("work was begun")
	}
}

// A failing stage stops the run, and the reports of those before it are kept.
func TestStopsAtTheFirstFailure(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no-such-text")
	e := &stage.Env{Work: t.TempDir()}
	out := filepath.Join(t.TempDir(), "b.np")
	rs, err := Run(context.Background(), e, Options{Checkpoint: open(t), Out: out, KMax: 10, Texts: []string{missing}})
	if !errors.Is(err, format.ErrInput) || len(rs) != 1 || rs[0].Stage != "repack" {
		t.Errorf("%v, %+v", err, rs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published")
	}
}

func TestStagesHaveTheirNames(t *testing.T) {
	for _, s := range Stages {
		if f, ok := Find(s.Name); !ok || f.Name != s.Name {
			t.Errorf("%s is not found", s.Name)
		}
	}
	if _, ok := Find("eval"); ok {
		t.Error("found what is not there")
	}
}
