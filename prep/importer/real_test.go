package importer

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/tokenizer"
)

// TestSmolLM2 imports the real model, where there is one, and holds its tokenizer against the golden prompts: ids of plain and of chat prompts, and the text
// of what the reference generated. pipelines/smollm2-135m/fetch.sh gets the file.
func TestSmolLM2(t *testing.T) {
	path := os.Getenv("NP_SMOLLM2_GGUF")
	if path == "" {
		t.Skip("set NP_SMOLLM2_GGUF to the file that pipelines/smollm2-135m/fetch.sh gets")
	}
	out := filepath.Join(t.TempDir(), "checkpoint")
	r, err := Import(context.Background(), path, out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Tensors != 272 || r.Types["Q4_1"] != 210 || r.Types["F32"] != 61 || r.Types["Q8_0"] != 1 || r.Vocab != 49152 || r.Merges != 48900 || r.Tokenizer != "gpt2/smollm" || r.Underflow != 0 {
		t.Errorf("report %+v", r)
	}
	tok, err := tokenizer.Load(filepath.Join(out, tokenizerName))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, templateName))
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(string(b), "<|im_start|>", "<|im_end|>")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Greedy []struct {
			Prompt    string
			PromptIDs []int32 `json:"prompt_ids"`
			GreedyIDs []int32 `json:"greedy_ids"`
			Text      string
		}
	}
	if b, err = os.ReadFile(filepath.Join("..", "..", "pipelines", "smollm2-135m", "golden.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Greedy) < 4 {
		t.Fatalf("%d prompts", len(golden.Greedy))
	}
	for _, g := range golden.Greedy {
		text, special := g.Prompt, true
		if user, ok := strings.CutPrefix(g.Prompt, "chat:"); ok {
			if text, err = template.Render([]chat.Message{{Role: "user", Content: user}}, true); err != nil {
				t.Fatal(err)
			}
			special = false
		}
		if got := tok.Encode(text, special); !slices.Equal(got, g.PromptIDs) {
			t.Errorf("%q gives %v, want %v", g.Prompt, got, g.PromptIDs)
		}
		if got := tok.Decode(g.GreedyIDs, true); got != g.Text {
			t.Errorf("%q: reads %q, want %q", g.Prompt, got, g.Text)
		}
	}
}
