package cmd_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// benchKeys are what bench --json reports at least.
var benchKeys = []string{"bundle", "tokens", "tok_per_s", "latency_s", "breakdown_s", "read_bytes_per_token", "reads_per_token", "mean_read_bytes",
	"reuse", "rows_needed", "rows_read", "d", "k_max", "mode", "io_backend", "direct_io", "memory_budget_bytes", "peak_rss_bytes", "io_busy_s", "io_hidden", "read_bytes_per_s", "touched_bytes_per_token", "process"}

// TestBenchSynthetic runs a replay as a user would: the report is whole, adds up, is marked, and the second run writes
// nothing.
func TestBenchSynthetic(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	args := []string{"bench", "--synthetic", "tiny", "--dir", dir, "--reuse", "0.75", "--memory", "100MiB", "--dense-layers", "2", "-n", "20", "--warmup", "2", "--json"}
	for _, want := range []bool{true, false} {
		out := run(t, "nprun", args...)
		var keys map[string]any
		parse(t, out, &keys)
		for _, k := range benchKeys {
			if _, ok := keys[k]; !ok {
				t.Errorf("bench --json has no %q", k)
			}
		}
		var r struct {
			Mode      string
			D         int
			KMax      int `json:"k_max"`
			Tokens    int
			TokPerS   float64            `json:"tok_per_s"`
			Breakdown map[string]float64 `json:"breakdown_s"`
			Latency   map[string]float64 `json:"latency_s"`
			Reuse     float64
			Needed    int64 `json:"rows_needed"`
			Read      int64 `json:"rows_read"`
			Selector  string
			Peak      int64 `json:"peak_rss_bytes"`
			Budget    int64 `json:"memory_budget_bytes"`
			Direct    bool  `json:"direct_io"`
			Bytes     int64 `json:"read_bytes"`
			Process   struct {
				Bytes  int64 `json:"storage_read_bytes"`
				Faults int64 `json:"major_faults"`
			}
			Synthetic struct {
				Shape   string
				Written bool
				Trace   *struct{ Reuse float64 }
			}
		}
		parse(t, out, &r)
		sum := 0.0
		for _, k := range []string{"io_wait", "compute", "predict", "other"} {
			sum += r.Breakdown[k]
		}
		if total := float64(r.Tokens) / r.TokPerS; math.Abs(sum-total) > 0.01*total {
			t.Errorf("the breakdown has %v s, %d tokens took %v s", sum, r.Tokens, total)
		}
		// 393 neurons, of which 98 change: (1 − 0.75)·393 to the nearest.
		if r.Mode != "sparse" || r.D != 2 || r.KMax != 393 || r.Tokens != 20 || r.Needed != 20*4*393 || r.Read != 20*4*98 {
			t.Errorf("%+v", r)
		}
		if r.Selector != "trace" || r.Synthetic.Shape != "tiny" || r.Synthetic.Trace == nil || r.Synthetic.Trace.Reuse != 0.75 || r.Synthetic.Written != want {
			t.Errorf("not marked as what it is: %+v", r)
		}
		if !(r.Latency["p50"] > 0 && r.Latency["p50"] <= r.Latency["p90"] && r.Latency["p90"] <= r.Latency["p99"] && r.Latency["p99"] <= r.Latency["max"]) {
			t.Errorf("latencies %v", r.Latency)
		}
		// Direct reads are counted by the kernel as they were asked for, and by nobody else.
		if p := r.Process; p.Faults < 0 || r.Direct && (p.Bytes < r.Bytes || p.Bytes > r.Bytes+1<<20) {
			t.Errorf("%d bytes read, the kernel counts %+v", r.Bytes, p)
		}
		if r.Peak > r.Budget {
			t.Errorf("peak %d above the budget %d", r.Peak, r.Budget)
		}
	}
	run(t, "nprun", "verify", "-b", filepath.Join(dir, "tiny"))
	for _, sweep := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"--sweep", "k-max=100,200", "--mode", "resident"}, 2, "error: --sweep k-max: nothing of it matters in resident mode"},
		{[]string{"--sweep", "k-max=100,99999", "--mode", "sparse"}, 3, "error: --k-max 99999: a layer has"},
	} {
		o, e, code := tool(t, "nprun", append([]string{"bench", "-b", filepath.Join(dir, "tiny"), "-n", "2", "--warmup", "0"}, sweep.args...)...)
		if code != sweep.code || o != "" || !strings.Contains(e, sweep.say) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", sweep.args, code, o, e)
		}
	}
	// A flag that does nothing says so.
	for _, mode := range []string{"resident", "stream"} {
		_, e, code := tool(t, "nprun", "bench", "-b", filepath.Join(dir, "tiny"), "--mode", mode, "--read-budget", "1MiB", "--margin", "1", "-n", "2", "--warmup", "0")
		if code != 0 || !strings.Contains(e, "note: --read-budget does nothing in "+mode+" mode\n") || !strings.Contains(e, "note: --margin does nothing") {
			t.Errorf("%s: exit %d, %s", mode, code, e)
		}
	}
	// A figure that cannot be drawn costs no result.
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--sweep", "dense-layers=1,2"}} {
		for _, kind := range []string{"--json", "--quiet"} {
			o, e, code := tool(t, "nprun", append([]string{"bench", "-b", filepath.Join(dir, "tiny"), "--mode", "sparse", "-n", "2", "--warmup", "0", "--plots", file, kind}, more...)...)
			if code != 5 || !strings.Contains(o, "tok") || !strings.Contains(e, file) || !strings.Contains(e, "hint: ") {
				t.Errorf("%v %s: exit %d, stdout %q, stderr %q", more, kind, code, o, e)
			}
		}
	}
	text := run(t, "nprun", "bench", "--synthetic", "tiny", "--dir", dir, "--mode", "stream", "--dense-layers", "1", "-n", "3", "--warmup", "0")
	if !strings.Contains(text, "SYNTHETIC") || strings.Contains(text, "trace") {
		t.Errorf("a streamed synthetic run says:\n%s", text)
	}
}

func TestBenchRefusals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	syn := []string{"bench", "--synthetic", "tiny", "--dir", dir}
	for name, c := range map[string]struct {
		args []string
		code int
		say  string
	}{
		"nothing":          {[]string{"bench"}, 2, "--bundle DIR"},
		"unknown shape":    {[]string{"bench", "--synthetic", "gpt-5"}, 2, "mistral-7b"},
		"both":             {append(syn, "-b", dir), 2, "exclude"},
		"impossible reuse": {append(syn, "--k-max", "900", "--reuse", "0.5"), 2, "at least 0.86"},
		"reuse above 1":    {append(syn, "--reuse", "1.5"), 2, "reuse 1.5"},
		"margin":           {append(syn, "--margin", "1"), 2, "--reuse"},
		"k-max":            {append(syn, "--k-max", "2000"), 2, "2000"},
		"reuse of a model": {[]string{"bench", "-b", dir, "--reuse", "0.8"}, 2, "--synthetic"},
		"file alone":       {[]string{"bench", "--file", short}, 2, "--drive"},
		"file too short":   {[]string{"bench", "--drive", "--file", short}, 3, "64 MiB"},
		"no file":          {[]string{"bench", "--drive", "--file", short + "x"}, 3, short + "x"},
		"file and bundle":  {[]string{"bench", "--drive", "--file", short, "-b", dir}, 2, "exclude"},
		"spell":            {[]string{"bench", "--drive", "--file", short, "--spell", "0"}, 2, "--spell 0"},
		"spell alone":      {append(syn, "--spell", "5"), 2, "--spell needs --drive"},
		"no trace":         {append(syn, "--mode", "stream", "--lag", "2"), 2, "--lag is of the trace"},
		"dir is a file":    {[]string{"bench", "--synthetic", "tiny", "--dir", short}, 5, "may be written with --dir"},
		"sweep of a value": {append(syn, "--sweep", "k-max=100"), 2, "2 to 64 values"},
		"sweep twice":      {append(syn, "--sweep", "k-max=100,100"), 2, "100 is named twice"},
		"calibrate a mode": {[]string{"calibrate", "--synthetic", "tiny", "--dir", dir, "--mode", "stream"}, 2, "--mode"},
		"calibrate, no b":  {[]string{"calibrate"}, 2, "--bundle DIR"},
	} {
		o, e, code := tool(t, "nprun", c.args...)
		if code != c.code || o != "" || !strings.Contains(e, c.say) {
			t.Errorf("%s: exit %d, want %d; stdout %q; stderr %q should hold %q", name, code, c.code, o, e, c.say)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tiny")); err == nil {
		t.Error("a refused run wrote the bundle")
	}
}

// TestBenchDrive measures a small file for a moment: what is measured differs from run to run, that it is there does not.
func TestBenchDrive(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	t.Setenv("XDG_CACHE_HOME", cache)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Drive struct {
			Cells []struct {
				Way   string
				Size  int     `json:"read_bytes"`
				Depth int     `json:"queue_depth"`
				Rate  float64 `json:"bytes_per_s"`
			}
		}
	}
	parse(t, run(t, "nprun", "bench", "--drive", "--file", file, "--spell", "1", "--json"), &r)
	seen := map[string]bool{}
	for _, c := range r.Drive.Cells {
		seen[c.Way] = true
		if !(c.Rate > 0) || c.Size == 0 || c.Depth == 0 {
			t.Errorf("%+v", c)
		}
	}
	if !seen["in place"] || !seen["registered"] {
		t.Errorf("ways measured: %v", seen)
	}
	if kept, _ := filepath.Glob(filepath.Join(cache, "neuroprefetcher", "drive-*.json")); len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
}

// TestCalibrate: the result lies beside the bundle, and plan and bench go by it.
func TestCalibrate(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	out := run(t, "nprun", "calibrate", "--synthetic", "tiny", "--dir", dir, "--memory", "100MiB", "-n", "2", "--warmup", "1", "--json")
	var r struct {
		Best    int `json:"d_star"`
		Largest int `json:"largest_d"`
		File    string
		Gap     int
		Gaps    []struct{ Gap int }
		Points  []struct {
			Mode string
			D    int
			Rate float64 `json:"tok_per_s"`
		}
	}
	parse(t, out, &r)
	best, rate := 0, 0.0
	for _, p := range r.Points {
		if p.Mode == "sparse" && p.Rate >= rate {
			best, rate = p.D, p.Rate
		}
	}
	if r.Largest != 5 || len(r.Gaps) < 2 || r.Gaps[0].Gap != 0 || r.Best != best || len(r.Points) < 6 || r.Points[0].Mode != "stream" {
		t.Errorf("%+v", r)
	}
	b := filepath.Join(dir, "tiny")
	if r.File != b+".calibration.json" {
		t.Errorf("kept in %s", r.File)
	}
	// Whatever was the fastest here, a result that says 3 must be followed.
	data, err := os.ReadFile(r.File)
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]any
	parse(t, string(data), &kept)
	fixed := strings.Replace(string(data), `"d_star": `+strconv.Itoa(r.Best), `"d_star": 3`, 1)
	fixed = strings.Replace(fixed, `"gap": `+strconv.Itoa(r.Gap), `"gap": 2048`, 1)
	if err := os.WriteFile(r.File, []byte(fixed), 0o666); err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Chosen struct {
			Dense int `json:"dense_layers"`
		}
	}
	parse(t, run(t, "nprun", "plan", "-b", b, "--memory", "100MiB", "--mode", "sparse", "--json"), &plan)
	if plan.Chosen.Dense != 3 {
		t.Errorf("plan has d = %d, calibrated is 3", plan.Chosen.Dense)
	}
	var bench struct{ D, Gap int }
	parse(t, run(t, "nprun", "bench", "--synthetic", "tiny", "--dir", dir, "--memory", "100MiB", "-n", "2", "--json"), &bench)
	if bench.D != 3 || bench.Gap != 2048 {
		t.Errorf("bench has d = %d and gap %d, kept are 3 and 2048", bench.D, bench.Gap)
	}
	// Another K_max was not calibrated, and another seed's rows are another bundle.
	parse(t, run(t, "nprun", "plan", "-b", b, "--memory", "100MiB", "--mode", "sparse", "--k-max", "200", "--json"), &plan)
	if plan.Chosen.Dense == 3 {
		t.Error("a calibration for another K_max was used")
	}
	run(t, "nprun", "bench", "--synthetic", "tiny", "--dir", dir, "--seed", "2", "-n", "1", "--warmup", "0")
	parse(t, run(t, "nprun", "plan", "-b", b, "--memory", "100MiB", "--mode", "sparse", "--json"), &plan)
	if plan.Chosen.Dense == 3 {
		t.Error("the calibration of other rows was used")
	}
	// One that cannot be kept is shown all the same.
	if err := errors.Join(os.RemoveAll(r.File), os.Mkdir(r.File, 0o777), os.WriteFile(filepath.Join(dir, "afile"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "afile"))
	o, e, code := tool(t, "nprun", "calibrate", "--synthetic", "tiny", "--dir", dir, "--memory", "100MiB", "-n", "1", "--warmup", "0")
	if code != 5 || !strings.Contains(o, "d* = ") || strings.Contains(o, "kept in") || !strings.Contains(e, "error: the calibration was not kept: ") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, o, e)
	}
}
