package cmd_test

import (
	"math"
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
