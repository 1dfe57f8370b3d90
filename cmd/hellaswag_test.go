package cmd_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// items is what eval --hellaswag --json reports.
type items struct {
	Protocol string
	Runs     []struct {
		Mode, Selector string
		Items, Shots   int
		Acc            float64
		AccNorm        float64 `json:"acc_norm"`
		Rows           []struct {
			Ind, Label, Pick int
			PickNorm         int `json:"pick_norm"`
			Sums             []float64
		}
	}
	Agreement *struct{ Acc, AccNorm float64 }
}

// TestHellaSwag holds that the command scores what it says: an ending's sum is that of its tokens' log-probabilities, the
// same in every exact mode and in sparse mode with every neuron, with shots in front or without.
func TestHellaSwag(t *testing.T) {
	b := prepared(t)
	file := filepath.Join(t.TempDir(), "items.jsonl")
	lines := `{"ind":1,"ctx":"The mill: Tara came to the orchard","endings":["with the basket.","at noon","[x] and sat down",""],"label":0}
{"ind":2,"ctx":"The fog: The fog had not","endings":["lifted yet.","come.","gone away","been"],"label":"2"}
{"ind":3,"ctx":"Pears: There ripe pears","endings":["hung over the path.","hung"],"label":1}
`
	if err := os.WriteFile(file, []byte(lines), 0o666); err != nil {
		t.Fatal(err)
	}
	score := func(args ...string) items {
		var r items
		parse(t, run(t, "nprun", append([]string{"eval", "-b", b, "--context", "256", "--json", "--hellaswag", file}, args...)...), &r)
		return r
	}
	first := score("--mode", "resident").Runs[0]
	if first.Items != 3 || first.Shots != 0 || len(first.Rows) != 3 || len(first.Rows[2].Sums) != 2 || first.Rows[1].Label != 2 {
		t.Fatalf("%+v", first)
	}
	// One ending by hand, through eval --ids.
	text := "The fog: The fog had not lifted yet."
	encode := func(s string) (ids []int) {
		path := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
		var enc struct{ IDs []int }
		parse(t, run(t, "nprun", "tokenize", "-b", b, "--no-special", "--json", "--text", path), &enc)
		return enc.IDs
	}
	all, from := encode(text), len(encode("The fog: The fog had not"))
	var list []string
	for _, id := range all {
		list = append(list, strconv.Itoa(id))
	}
	var lp struct{ LogProbs []*float64 }
	parse(t, run(t, "nprun", "eval", "-b", b, "--mode", "resident", "--json", "--ids", strings.Join(list, ",")), &lp)
	want := 0.0
	for _, v := range lp.LogProbs[from:] {
		want += *v
	}
	if got := first.Rows[1].Sums[0]; math.Abs(got-want) > 1e-6 {
		t.Errorf("an ending scores %v, its tokens %v", got, want)
	}
	for _, n := range []string{"0", "2"} {
		shots := []string{}
		if n != "0" {
			shots = []string{"--shots", file, "-n", n}
		}
		ref := score(append(shots, "--mode", "resident")...).Runs[0]
		r := score(append(shots, "--mode", "sparse", "--k-max", "448", "--dense-layers", "2", "--memory", "64MiB", "--exact")...)
		if len(r.Runs) != 2 || r.Runs[0].Mode != "stream" || r.Runs[1].Mode != "sparse" || r.Runs[1].Selector == "" || r.Agreement == nil || r.Agreement.Acc != 1 {
			t.Fatalf("%+v", r)
		}
		for _, x := range r.Runs {
			for i := range x.Rows {
				for k := range x.Rows[i].Sums {
					if got, want := x.Rows[i].Sums[k], ref.Rows[i].Sums[k]; math.Abs(got-want) > 1e-3*(1+math.Abs(want)) {
						t.Errorf("%s shots, %s, item %d, ending %d: %v, resident has %v", n, x.Mode, i, k, got, want)
					}
				}
			}
		}
	}
	if got := score("--items", "1").Runs[0]; got.Items != 1 || got.Rows[0].Sums[0] != first.Rows[0].Sums[0] {
		t.Errorf("the first item alone: %+v", got)
	}
	for _, args := range [][]string{{"-n", "1"}, {"--shots", file}, {"--exact"}, {"--windows", "1"}, {"--items", "-1"}} {
		if _, e, code := tool(t, "nprun", append([]string{"eval", "-b", b, "--hellaswag", file}, args...)...); code != 2 {
			t.Errorf("%v: exit %d, %s", args, code, e)
		}
	}
}

// TestSmolLM2HellaSwag holds the sums and answers of HellaSwag's first items, without shots, against transformers in float32.
// It needs a bundle of SmolLM2-135M-Instruct (NP_SMOLLM2_BUNDLE), the items of pipelines/smollm2-135m/hellaswag.json in their
// order (NP_HELLASWAG), and some seconds per item; NP_HELLASWAG_ITEMS takes fewer.
func TestSmolLM2HellaSwag(t *testing.T) {
	b, file := os.Getenv("NP_SMOLLM2_BUNDLE"), os.Getenv("NP_HELLASWAG")
	if b == "" || file == "" {
		t.Skip("NP_SMOLLM2_BUNDLE and NP_HELLASWAG are not set")
	}
	data, err := os.ReadFile("../pipelines/smollm2-135m/hellaswag.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Rows []struct {
			Ind     int
			Sums    []float64
			Acc     bool
			AccNorm bool `json:"acc_norm"`
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	n := len(golden.Rows)
	if s := os.Getenv("NP_HELLASWAG_ITEMS"); s != "" {
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > len(golden.Rows) {
			t.Fatalf("NP_HELLASWAG_ITEMS=%s: want 1 to %d", s, len(golden.Rows))
		}
	}
	var r items
	parse(t, run(t, "nprun", "eval", "-b", b, "--mode", "resident", "--hellaswag", file, "--items", strconv.Itoa(n), "--json"), &r)
	worst := 0.0
	for i, x := range r.Runs[0].Rows {
		g := golden.Rows[i]
		if x.Ind != g.Ind || len(x.Sums) != len(g.Sums) {
			t.Fatalf("item %d: %+v, want %+v", i, x, g)
		}
		for k := range x.Sums {
			worst = max(worst, math.Abs(x.Sums[k]-g.Sums[k])/(1+math.Abs(g.Sums[k])))
		}
		if (x.Pick == x.Label) != g.Acc || (x.PickNorm == x.Label) != g.AccNorm {
			t.Errorf("item %d: %+v, want %+v", i, x, g)
		}
	}
	t.Logf("%d items, acc %.4f, acc_norm %.4f, sums off by at most %.2g of themselves", n, r.Runs[0].Acc, r.Runs[0].AccNorm, worst)
	if worst > 5e-3 {
		t.Errorf("a sum is off by %v of itself", worst)
	}
}
