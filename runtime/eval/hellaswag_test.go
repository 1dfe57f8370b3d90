package eval_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/runtime/eval"
)

// TestPreprocess holds the texts of items against what lm-evaluation-harness makes of them, worked out by hand.
func TestPreprocess(t *testing.T) {
	for in, want := range map[string]string{
		"  A man walks. \n":                          "A man walks.",
		"How to nap [title] Lie down. [step] Sleep.": "How to nap. Lie down. Sleep.",
		"[header] How to nap":                        " How to nap", // only what stood outside is stripped
		"a [x] [y] b":                                "a  b",        // three spaces become two
		"open [ only":                                "open [ only",
		"[a]":                                        "",
		"x [a\nb] y":                                 "x [a\nb] y", // a dot does not match a line end
	} {
		if got := eval.Preprocess(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func load(t *testing.T, lines string) ([]eval.Item, error) {
	path := filepath.Join(t.TempDir(), "items.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return eval.LoadHellaSwag(path)
}

// TestLoadHellaSwag reads both forms of a file, and refuses what is neither.
func TestLoadHellaSwag(t *testing.T) {
	items, err := load(t, `{"ind": 4, "activity_label": "Roof shingle removal", "ctx_a": "A man is on a roof.", "ctx_b": "he Starts", "ctx": "unused", "endings": ["is  using wrap.", "is [x]ripping."], "label": "1"}
{"ind": 7, "ctx": "Nap: a man lies", "endings": ["down.", "up."], "label": 0}
`)
	want := []eval.Item{
		{Ind: 4, Query: "Roof shingle removal: A man is on a roof. He starts", Endings: []string{"is using wrap.", "is ripping."}, Label: 1},
		{Ind: 7, Query: "Nap: a man lies", Endings: []string{"down.", "up."}},
	}
	if err != nil || !reflect.DeepEqual(items, want) {
		t.Fatalf("%v, %v", items, err)
	}
	if got := eval.Prompt(items[:1], items[1]); got != "Roof shingle removal: A man is on a roof. He starts is ripping.\n\nNap: a man lies" {
		t.Errorf("prompt %q", got)
	}
	for _, bad := range []string{"", "[]", "{", `{"ctx": "a", "endings": ["b"], "label": 0}`, `{"ctx": "a", "endings": ["b", "c"], "label": 2}`,
		`{"ctx": "a", "endings": ["b", "c"], "label": "x"}`, `{"ctx": "a", "endings": ["b", "c"]}`, `{"ctx": " ", "endings": ["b", "c"], "label": 0}`} {
		if items, err := load(t, bad); err == nil {
			t.Errorf("%s was read as %v", bad, items)
		}
	}
	for bad, want := range map[string]string{"{}\n": "line 1: 0 endings", "\n{\"ctx\": \"d\xffg\"}": "line 2: not UTF-8",
		"\n\n" + strings.Repeat(" ", 2<<20): "line 3: longer than", "[1]": "line 1: an item is a JSON array", `{"ctx": "a", "endings": ["", " [x]"], "label": 0}`: "line 1: all endings are empty", `{"ctx": 1}`: "line 1: ctx is a JSON number", `{"ctx": "a", "endings": "b"}`: "line 1: endings is a JSON string"} {
		if _, err := load(t, bad); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "struct") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestPick holds that acc takes sums and acc_norm sums per character, not per byte, and that an empty ending is no answer.
func TestPick(t *testing.T) {
	s := eval.Pick(eval.Item{Endings: []string{"éééé", "eeeeeeee"}}, []float64{-4, -6})
	if s.Raw != 0 || s.Norm != 1 {
		t.Errorf("%+v", s)
	}
	if s = eval.Pick(eval.Item{Endings: []string{"", "ab", "cd"}}, []float64{-9, -3, -3}); s.Raw != 1 || s.Norm != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRunHellaSwag scores with a tokenizer of bytes and a scorer that knows what it was asked.
func TestRunHellaSwag(t *testing.T) {
	encode := func(s string) []int32 {
		var ids []int32
		for _, b := range []byte(s) {
			ids = append(ids, int32(b))
		}
		return ids
	}
	shot := eval.Item{Query: "q", Endings: []string{"a", "b"}, Label: 1}
	item := eval.Item{Ind: 3, Query: "x", Endings: []string{"yy", "z"}, Label: 1}
	var asked []string
	score := func(_ context.Context, ids []int32, from int) ([]float64, error) {
		var b strings.Builder
		for i, id := range ids {
			if i == from {
				b.WriteByte('|')
			}
			b.WriteByte(byte(id))
		}
		asked = append(asked, b.String())
		lp := make([]float64, len(ids)-from)
		for i := range lp {
			lp[i] = -1
		}
		return lp, nil
	}
	h, err := eval.RunHellaSwag(context.Background(), encode, []eval.Item{item}, []eval.Item{shot}, 0, score, nil)
	if err != nil || h.Acc != 1 || h.AccNorm != 0 || h.Shots != 1 || !reflect.DeepEqual(h.Rows[0].Sums, []float64{-3, -2}) {
		t.Fatalf("%+v, %v", h, err)
	}
	if want := []string{"q b\n\nx| yy", "q b\n\nx| z"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("%q", asked)
	}
	// A short context loses the beginning, and always keeps a token to predict from.
	asked = nil
	if _, err = eval.RunHellaSwag(context.Background(), encode, []eval.Item{item}, nil, 3, score, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{" |yy", "x| z"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("%q", asked)
	}
}
