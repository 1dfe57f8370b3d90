package cmd_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExactBeside holds eval --text --exact against both modes measured alone.
func TestExactBeside(t *testing.T) {
	b := prepared(t)
	type result struct {
		Perplexity float64
		Exact      *struct {
			Perplexity float64
			Stats      struct{ Mode string }
		}
		Ratio  float64
		StdErr float64 `json:"ratio_standard_error"`
		Stats  struct{ Mode string }
	}
	eval := func(args ...string) (r result) {
		parse(t, run(t, "nprun", append([]string{"eval", "-b", b, "--context", "64", "--windows", "3", "--window", "64", "--json", "--text", "../pipelines/tiny/heldout.txt"}, args...)...), &r)
		return r
	}
	sparse := []string{"--mode", "sparse", "--dense-layers", "2", "--k-max", "150"}
	both, alone, exact := eval(append(sparse, "--exact")...), eval(sparse...), eval("--mode", "resident")
	if both.Perplexity != alone.Perplexity || both.Stats.Mode != "sparse" || both.Exact == nil || both.Exact.Stats.Mode != "stream" || alone.Exact != nil {
		t.Fatalf("%+v, alone %+v", both, alone)
	}
	if both.Exact.Perplexity != exact.Perplexity {
		t.Errorf("exact perplexity %v beside sparse, %v in resident mode", both.Exact.Perplexity, exact.Perplexity)
	}
	if want := both.Perplexity / both.Exact.Perplexity; math.Abs(both.Ratio-want) > 1e-12*want || !(both.StdErr > 0 && both.StdErr < 0.2) {
		t.Errorf("ratio %v ± %v, want %v", both.Ratio, both.StdErr, want)
	}
	if out := run(t, "nprun", append([]string{"eval", "-b", b, "--windows", "2", "--window", "32", "--text", "../pipelines/tiny/heldout.txt", "--exact"}, sparse...)...); !strings.Contains(string(out), "sparse ÷ exact ") {
		t.Errorf("%s", out)
	}
	if _, e, code := tool(t, "nprun", "eval", "-b", b, "--text", "../pipelines/tiny/heldout.txt", "--exact"); code != 2 {
		t.Errorf("--exact without sparse mode: exit %d, %s", code, e)
	}
}

// TestProtocolIsNamed holds that what is measured says how: the text by its hash, windows, BOS, how many tokens are scored
// and what the figure is per, in both forms; and that a bundle measured on its own calibration text is warned of where
// that text had a say in the result.
func TestProtocolIsNamed(t *testing.T) {
	b := prepared(t)
	hash := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", sha256.Sum256(data))
	}
	const calibration, heldout = tiny + "calibration.txt", tiny + "heldout.txt"
	args := func(text string, more ...string) []string {
		return append([]string{"eval", "-b", b, "--context", "32", "--window", "32", "--windows", "2", "--text", text}, more...)
	}
	for _, c := range []struct {
		mode   []string
		scored int
		says   string
	}{
		{[]string{"--mode", "resident"}, 62, "no BOS"},
		{[]string{"--mode", "resident", "--bos"}, 62, "BOS in each window"}, // one place of each window is the BOS's
		{[]string{"--mode", "sparse", "--dense-layers", "2"}, 62, "no BOS"},
	} {
		out := run(t, "nprun", args(heldout, c.mode...)...)
		for _, want := range []string{"2 windows of 32 tokens without overlap", c.says, "per token", fmt.Sprintf("%d of ", c.scored), "text sha256 " + hash(heldout)[:12], c.mode[1] + " mode"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: %q lacks %q", c.mode, out, want)
			}
		}
		var r struct {
			Windows, Window int
			BOS             bool
			Scored          int    `json:"scored_tokens"`
			Text            string `json:"text_sha256"`
			Stats           struct{ Mode string }
		}
		parse(t, run(t, "nprun", append(args(heldout, c.mode...), "--json")...), &r)
		if r.Windows != 2 || r.Window != 32 || r.BOS != strings.HasPrefix(c.says, "BOS") || r.Scored != c.scored || r.Text != hash(heldout) || r.Stats.Mode != c.mode[1] {
			t.Errorf("%v: %+v", c.mode, r)
		}
	}
	for _, c := range []struct {
		text, mode string
		warned     bool
	}{{calibration, "sparse", true}, {heldout, "sparse", false}, {calibration, "resident", false}} {
		_, e, code := tool(t, "nprun", args(c.text, "--mode", c.mode)...)
		if code != 0 || strings.Contains(e, "calibrated on this text") != c.warned {
			t.Errorf("%s, %s mode: exit %d, %s", c.text, c.mode, code, e)
		}
	}

	// éééé has 4 characters in 8 bytes, eeeeeeee 8 in 8; an ending of brackets alone is empty.
	file := filepath.Join(t.TempDir(), "items.jsonl")
	if err := os.WriteFile(file, []byte(`{"ind":1,"ctx":"The mill","endings":["éééé","eeeeeeee","[step]"],"label":0}`), 0o666); err != nil {
		t.Fatal(err)
	}
	items := []string{"eval", "-b", b, "--context", "64", "--mode", "resident", "--hellaswag", file}
	out := run(t, "nprun", items...)
	for _, want := range []string{"1 item ", "0 shots", "sha256 " + hash(file)[:12], "no BOS", "largest sum per character", "acc ", "acc_norm "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	var r struct {
		Items string `json:"items_sha256"`
		Runs  []struct {
			Rows []struct {
				PickNorm int `json:"pick_norm"`
				Sums     []float64
			}
		}
	}
	parse(t, run(t, "nprun", append(items, "--json")...), &r)
	if r.Items != hash(file) || len(r.Runs) != 1 || len(r.Runs[0].Rows) != 1 || len(r.Runs[0].Rows[0].Sums) != 3 {
		t.Fatalf("%+v", r)
	}
	row := r.Runs[0].Rows[0]
	want := 0
	if row.Sums[1]/8 > row.Sums[0]/4 {
		want = 1
	}
	if row.PickNorm != want {
		t.Errorf("sums %v: picks %d per character, want %d", row.Sums, row.PickNorm, want)
	}
}
