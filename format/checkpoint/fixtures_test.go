package checkpoint_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"neuroprefetcher/format/checkpoint"
)

// TestFixtures opens every small checkpoint of the repository and compares the resolved configuration.
func TestFixtures(t *testing.T) {
	base := checkpoint.Config{ModelType: "llama", Layers: 3, Hidden: 64, Intermediate: 176, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 320,
		MaxPositions: 256, RMSEps: 1e-5, Rope: checkpoint.Rope{Theta: 10000}, BOS: 1, EOS: []int{2}}
	scaled := checkpoint.Rope{Theta: 500000, Kind: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, OriginalMax: 32}
	want := map[string]func(c *checkpoint.Config){
		"llama2":          func(c *checkpoint.Config) { c.KVHeads = 4 },
		"llama3":          func(c *checkpoint.Config) { c.Rope = scaled },
		"llama3-new-keys": func(c *checkpoint.Config) { c.Rope = scaled },
		"mistral":         func(c *checkpoint.Config) { c.ModelType, c.Rope.Theta = "mistral", 1e6 },
		"mistral-window":  func(c *checkpoint.Config) { c.ModelType, c.HeadDim, c.SlidingWindow = "mistral", 32, 16 },
		"qwen2":           func(c *checkpoint.Config) { c.ModelType, c.QKVBias, c.Tied = "qwen2", true, true },
		"smollm2":         func(c *checkpoint.Config) { c.Rope.Theta, c.Tied = 1e5, true },
	}
	root := filepath.Join("..", "..", "runtime", "model", "testdata", "arch")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) != len(want) {
		t.Errorf("%d fixtures, want %d", len(dirs), len(want))
	}
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			c, err := checkpoint.Open(filepath.Join(root, d.Name()))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			w := base
			want[d.Name()](&w)
			if !reflect.DeepEqual(*c.Config, w) {
				t.Errorf("got  %+v\nwant %+v", *c.Config, w)
			}
			if err := c.Config.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTinyPipeline(t *testing.T) {
	dir := filepath.Join("..", "..", "pipelines", "tiny", "checkpoint")
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := checkpoint.Config{ModelType: "llama", Layers: 6, Hidden: 128, Intermediate: 448, Heads: 4, KVHeads: 2, HeadDim: 32, Vocab: 1024,
		MaxPositions: 512, RMSEps: 1e-5, Rope: checkpoint.Rope{Theta: 10000}, BOS: 0, EOS: []int{1}}
	if !reflect.DeepEqual(*c.Config, want) {
		t.Errorf("got  %+v\nwant %+v", *c.Config, want)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings: %q", c.Warnings)
	}
	text, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.ChatTemplate(); err != nil || got != string(text) {
		t.Errorf("chat template %q, %v", got, err)
	}
	var names []string
	for _, f := range c.Files() {
		names = append(names, filepath.Base(f))
	}
	if w := []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "model.safetensors"}; !reflect.DeepEqual(names, w) {
		t.Errorf("files %q, want %q", names, w)
	}
}
