package cmd_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ct "neuroprefetcher/format/checkpoint/checkpointtest"
)

// TestEveryEndToken goes from checkpoints that say the same id for ever to their text: the ids of config.json,
// generation_config.json and tokenizer_config.json all end it, none is part of it, and --ignore-eos ignores them all.
func TestEveryEndToken(t *testing.T) {
	const id = 7
	generation := func(text string) func(*ct.Model) {
		return func(m *ct.Model) { m.Files = map[string]string{"generation_config.json": text} }
	}
	config := func(eos any) func(*ct.Model) { return func(m *ct.Model) { m.Config["eos_token_id"] = eos } }
	for name, c := range map[string]struct {
		edits []func(*ct.Model)
		stops bool
	}{
		"generation_config.json lists it": {[]func(*ct.Model){config(2), generation(`{"eos_token_id":[2,7]}`)}, true},
		"config.json lists it":            {[]func(*ct.Model){config([]int{2, 7})}, true},
		"config.json says null":           {[]func(*ct.Model){config(nil), generation(`{"eos_token_id":7}`)}, true},
		"tokenizer_config.json names it": {[]func(*ct.Model){config(2), func(m *ct.Model) {
			m.Files = map[string]string{"tokenizer_config.json": `{"eos_token":"<|e|>"}`}
			m.Tokenizer = func(tok map[string]any) {
				delete(tok["model"].(map[string]any)["vocab"].(map[string]int), ct.ByteToken(id-ct.FirstByte))
				ct.AddToken(tok, id, "<|e|>", true)
			}
		}}, true},
		"no file names it":  {[]func(*ct.Model){config(2)}, false},
		"no file names any": {[]func(*ct.Model){config(nil)}, false},
	} {
		dir := ct.Dir(t, append(c.edits, func(m *ct.Model) {
			m.Edit = func(ts []ct.Tensor) []ct.Tensor { ct.Rig(ts, id); return ts }
		})...)
		out := filepath.Join(t.TempDir(), "bundle")
		run(t, "npprep", "prepare", "--quiet", "--dense", "--model", dir, "--out", out)
		for _, ignore := range []bool{false, true} {
			var got struct {
				Text   string
				IDs    []int
				Finish string `json:"finish_reason"`
			}
			args := []string{"generate", "-b", out, "--json", "--quiet", "--prompt", "q", "--max-tokens", "5"}
			if ignore {
				args = append(args, "--ignore-eos")
			}
			parse(t, run(t, "nprun", args...), &got)
			want, ids, finish := "", "[]", "stop"
			if ignore || !c.stops {
				ids, finish = "[7 7 7 7 7]", "length"
				if !strings.HasPrefix(name, "tokenizer_config") { // there it is a control token
					want = strings.Repeat("\x04", 5)
				}
			}
			if got.Text != want || fmt.Sprint(got.IDs) != ids || got.Finish != finish {
				t.Errorf("%s, ignored %v: %+v, want %q, %s, %s", name, ignore, got, want, ids, finish)
			}
		}
	}
}
