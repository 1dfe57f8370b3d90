package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"neuroprefetcher/format"
)

// counted is a stage that writes the given files and counts its runs.
func counted(runs *int, files map[string]string) func(context.Context, string, *Progress) (map[string]any, error) {
	return func(_ context.Context, dir string, p *Progress) (map[string]any, error) {
		*runs++
		for n, s := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o777); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(dir, n), []byte(s), 0o666); err != nil {
				return nil, err
			}
		}
		return map[string]any{"n": *runs}, nil
	}
}

func TestSkipsOnlyWhatIsUpToDate(t *testing.T) {
	work := filepath.Join(t.TempDir(), "w")
	in := filepath.Join(t.TempDir(), "in")
	write := func(path, s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(in, "one")
	spec := Spec{Name: "s", Version: 1, Inputs: []string{in}, Params: map[string]int{"a": 1}}
	runs := 0
	check := func(what string, want bool) {
		t.Helper()
		before := runs
		e := &Env{Work: work} // a fresh process
		r, err := Run(context.Background(), e, spec, counted(&runs, map[string]string{"out": "bytes", "sub/out2": "more"}))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ran := runs > before; ran != want || r.Skipped == want {
			t.Errorf("%s: ran %v, skipped %v, want run %v", what, ran, r.Skipped, want)
		}
		if fmt.Sprint(r.Values["n"]) != fmt.Sprint(runs) {
			t.Errorf("%s: values %v after %d runs", what, r.Values, runs)
		}
	}
	out := filepath.Join(work, "s", "out")
	check("first", true)
	check("again", false)
	write(in, "two")
	check("other input", true)
	write(in, "two")
	check("input written again with the same bytes", false)
	spec.Params = map[string]int{"a": 2}
	check("other parameters", true)
	spec.Version = 2
	check("other version", true)
	spec.Inputs = []string{in, strings.Repeat("0", 64)}
	check("one more hash", true)
	spec.Inputs = []string{strings.Repeat("0", 64), in}
	check("other order", true)
	check("again", false)
	os.Remove(out)
	check("output gone", true)
	write(out, "bytez")
	check("output changed, same size", true)
	write(out, "bytes and more")
	check("output longer", true)
	os.Remove(filepath.Join(work, "s", "sub", "out2"))
	check("output in a folder gone", true)
	write(filepath.Join(work, "s", "stage.json"), `{"key":`)
	check("record damaged", true)
	os.Remove(filepath.Join(work, "hashes.json"))
	check("hash cache gone", false)
	write(filepath.Join(work, "hashes.json"), "[1]")
	check("hash cache damaged", false)
	spec.Check = func(context.Context, map[string]any) error { return errors.New("no") }
	check("own condition", true)
	if got, _ := os.ReadFile(out); string(got) != "bytes" {
		t.Errorf("output %q", got)
	}
}

func TestHashCacheSeesEveryChange(t *testing.T) {
	work := t.TempDir()
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("aaaa"), 0o666)
	old := time.Now().Add(-time.Hour)
	os.Chtimes(path, old, old)
	e := &Env{Work: work}
	h1, err := e.FileHash(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	// same size, same modification time: only ctime tells
	os.WriteFile(path, []byte("bbbb"), 0o666)
	os.Chtimes(path, old, old)
	h2, err := e.FileHash(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	direct, _ := FileHash(path)
	if h1 == h2 || h2 != direct {
		t.Errorf("hash %s, then %s, really %s", h1, h2, direct)
	}
	if h2 != "81cc5b17018674b401b42f35ba07bb79e211239c23bffe658da1577e3e646877" {
		t.Errorf("sha256 of bbbb is %s", h2)
	}
	if _, err := e.FileHash(context.Background(), path+"x"); !errors.Is(err, format.ErrInput) {
		t.Errorf("missing: %v", err)
	}
}

// Units of an interrupted run are found again under the same key, and by no other.
func TestUnitsSurviveOnlyTheirKey(t *testing.T) {
	work := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	e := &Env{Work: work}
	spec := Spec{Name: "s", Params: 1}
	stop := errors.New("drive on fire")
	_, err := Run(ctx, e, spec, func(_ context.Context, dir string, _ *Progress) (map[string]any, error) {
		os.WriteFile(filepath.Join(dir, ".unit"), []byte("1"), 0o666)
		return nil, stop
	})
	if !errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "s: ") {
		t.Fatal(err)
	}
	_, err = Run(ctx, e, spec, func(_ context.Context, dir string, _ *Progress) (map[string]any, error) {
		if _, err := os.Stat(filepath.Join(dir, ".unit")); err != nil {
			t.Error("unit is gone")
		}
		cancel()
		return nil, nil // a stage that overlooks that it was told to stop
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	spec.Params = 2
	_, err = Run(context.Background(), e, spec, func(_ context.Context, dir string, _ *Progress) (map[string]any, error) {
		if _, err := os.Stat(filepath.Join(dir, ".unit")); err == nil {
			t.Error("unit of another key")
		}
		os.WriteFile(filepath.Join(dir, ".unit"), []byte("2"), 0o666)
		return nil, os.WriteFile(filepath.Join(dir, "out"), nil, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	ents, _ := os.ReadDir(filepath.Join(work, "s"))
	var names []string
	for _, d := range ents {
		names = append(names, d.Name())
	}
	if fmt.Sprint(names) != "[out stage.json]" {
		t.Errorf("a finished stage has %v", names)
	}
}

// A run killed after the record was written but before its notes were removed is done.
func TestKilledWhileLeaving(t *testing.T) {
	work := t.TempDir()
	runs := 0
	spec := Spec{Name: "s"}
	f := counted(&runs, map[string]string{"out": "x"})
	if _, err := Run(context.Background(), &Env{Work: work}, spec, f); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(work, "s", ".unit"), nil, 0o666)
	rec := readRecord(filepath.Join(work, "s"))
	os.WriteFile(filepath.Join(work, "s", keyFile), []byte(rec.Key), 0o666)
	r, err := Run(context.Background(), &Env{Work: work}, spec, f)
	if err != nil || !r.Skipped || runs != 1 {
		t.Errorf("%v, %+v, %d runs", err, r, runs)
	}
}

func TestReportFile(t *testing.T) {
	work := t.TempDir()
	e := &Env{Work: work}
	runs := 0
	for _, n := range []string{"a", "b"} {
		if _, err := Run(context.Background(), e, Spec{Name: n}, counted(&runs, nil)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(work, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Stages []Report }
	if err := json.Unmarshal(b, &got); err != nil || len(got.Stages) != 2 || got.Stages[1].Stage != "b" {
		t.Errorf("%v: %s", err, b)
	}
	if got.Stages[0].PeakRSS < 1<<20 {
		t.Errorf("peak %d", got.Stages[0].PeakRSS)
	}
	if _, err := e.Outputs("none"); !errors.Is(err, format.ErrInput) || format.HintOf(err) == "" {
		t.Errorf("outputs of a stage never run: %v", err)
	}
}

// The peak is the stage's own where the kernel lets it be reset.
func TestPeakIsReset(t *testing.T) {
	big := make([]byte, 64<<20)
	for i := range big {
		big[i] = 1
	}
	high := peakRSS()
	big = nil
	_ = big
	if !resetPeak() {
		t.Log("clear_refs may not be written here: reports say so")
		return
	}
	if now := peakRSS(); now > high-(48<<20) {
		t.Errorf("peak %d before, %d after the reset", high, now)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	if work := os.Getenv("STAGE_TEST_WORK"); work != "" {
		err := (&Env{Work: work}).Lock()
		fmt.Println("lock:", err, errors.Is(err, format.ErrInput))
		return
	}
	work := t.TempDir()
	e := &Env{Work: work}
	if err := e.Lock(); err != nil {
		t.Fatal(err)
	}
	other := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefused$")
		cmd.Env = append(os.Environ(), "STAGE_TEST_WORK="+work)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	// still held inside a stage and after it
	_, err := Run(context.Background(), e, Spec{Name: "s"}, func(context.Context, string, *Progress) (map[string]any, error) {
		if out := other(); !strings.Contains(out, "another npprep is working") || !strings.Contains(out, "true") {
			t.Errorf("inside a stage: %s", out)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := other(); !strings.Contains(out, "another npprep is working") {
		t.Errorf("between stages: %s", out)
	}
	e.Unlock()
	if out := other(); !strings.Contains(out, "lock: <nil>") {
		t.Errorf("after: %s", out)
	}
}

// What a killed run was writing into the work folder itself goes with the next run; other files there are nobody's.
func TestLockClearsTemporaryFiles(t *testing.T) {
	work := t.TempDir()
	for _, name := range []string{".report.json12345", ".hashes.json6", ".report.jsonx", ".mine7", "report.json"} {
		if err := os.WriteFile(filepath.Join(work, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	e := &Env{Work: work}
	if err := e.Lock(); err != nil {
		t.Fatal(err)
	}
	e.Unlock()
	left, err := os.ReadDir(work)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range left {
		names = append(names, d.Name())
	}
	if want := []string{".lock", ".mine7", ".report.jsonx", "report.json"}; !slices.Equal(names, want) {
		t.Errorf("left are %q, want %q", names, want)
	}
}

func TestProgressLine(t *testing.T) {
	p := &Progress{stage: "repack", label: "layers", total: 32, unit: "layers"}
	for _, c := range []struct {
		done int64
		d    time.Duration
		want string
	}{
		{0, 3 * time.Second, "repack: layers: 0 of 32 layers (0%)"},
		{12, 8 * time.Second, "repack: layers: 12 of 32 layers (37%), 1.5 layers/s, 13s left"},
		{32, 16 * time.Second, "repack: layers: 32 of 32 layers (100%), 2 layers/s"},
	} {
		if got := p.line(c.done, c.d); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	p = &Progress{stage: "s", label: "hashing inputs", total: 4 << 30, unit: "B"}
	if got := p.line(1<<30, 2*time.Second); got != "s: hashing inputs: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6s left" {
		t.Errorf("%q", got)
	}
	p = &Progress{stage: "s", label: "tokens", unit: "tokens"}
	if got := p.line(500, time.Second); got != "s: tokens: 500 tokens, 500 tokens/s" {
		t.Errorf("%q", got)
	}
}

// Short work shows nothing; a nil Progress is good.
func TestShortWorkIsQuiet(t *testing.T) {
	var log bytes.Buffer
	p := newProgress(&Env{Log: &log}, "s")
	p.Start("x", 10, "things")
	p.Add(10)
	p.Start("y", 10, "things")
	p.Done()
	p.Done()
	if log.Len() > 0 {
		t.Errorf("%q", log.String())
	}
	var none *Progress
	none.Start("x", 1, "y")
	none.Add(1)
	none.Done()
}
