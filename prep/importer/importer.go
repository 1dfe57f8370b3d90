package importer

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/gguf"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/runtime/tokenizer"
)

// Options of an import. The zero value is good.
type Options struct {
	// Progress, if set, is called with bytes of tensor data written and wanted. Calls come from one goroutine.
	Progress func(done, total int64)
}

// Report says what an import found and wrote.
type Report struct {
	Architecture string         `json:"architecture"`
	Tensors      int            `json:"tensors"`       // tensors written
	Types        map[string]int `json:"types"`         // ggml type → tensors read
	BytesRead    int64          `json:"bytes_read"`    // of tensor data
	BytesWritten int64          `json:"bytes_written"` // of tensor data
	Values       int64          `json:"values"`        // values converted to float16
	Rounded      int64          `json:"rounded"`       // of these, values that float16 does not hold exactly
	Underflow    int64          `json:"underflow"`     // of these, values that were not zero and became zero
	Vocab        int            `json:"vocab"`         // tokens that have a text
	Merges       int            `json:"merges"`
	Tokenizer    string         `json:"tokenizer"` // the GGUF's tokenizer model and, after a slash, its pre-tokenizer
	ChatTemplate bool           `json:"chat_template"`
	Unused       []string       `json:"unused,omitempty"` // tensors that a checkpoint does not have, such as a table that repeats the configuration
}

// textFile is a file of the checkpoint that is written from memory.
type textFile struct {
	name string
	data []byte
}

// Import reads the GGUF file at ggufPath and publishes a checkpoint directory at outDir. Everything that can be refused from the header is refused before
// anything is written; a good outDir of an earlier run is replaced only by a finished one.
func Import(ctx context.Context, ggufPath, outDir string, o Options) (Report, error) {
	g, err := gguf.Open(ggufPath)
	if err != nil {
		return Report{}, err
	}
	defer g.Close()
	m := meta{path: ggufPath, kv: g.KV}
	r := Report{Types: map[string]int{}}

	cfg, err := readConfig(g, m)
	if err != nil {
		return Report{}, err
	}
	r.Architecture = cfg.arch
	tok, err := readTokenizer(m)
	if err != nil {
		return Report{}, err
	}
	if len(tok.tokens) > cfg.vocab {
		return Report{}, format.Inputf("%s: key %q: %d tokens, but tensor %q has %d rows", ggufPath, keyTokens, len(tok.tokens), "token_embd.weight", cfg.vocab)
	}
	files, err := textFiles(cfg, tok)
	if err != nil {
		return Report{}, err
	}
	r.Vocab, r.Merges, r.Tokenizer, r.ChatTemplate = tok.texts(), len(tok.merges), tok.label(), tok.template != ""
	c := &converter{ctx: ctx, g: g, cfg: cfg, report: &r, progress: o.Progress}
	if err := c.plan(); err != nil {
		return Report{}, err
	}
	p, err := newPublisher(outDir, c.total)
	if err != nil {
		return Report{}, err
	}
	defer p.discard()
	for _, f := range files {
		if err := format.WriteFileAtomic(filepath.Join(p.dir, f.name), func(w io.Writer) error { _, err := w.Write(f.data); return err }); err != nil {
			return Report{}, err
		}
	}
	if _, err := tokenizer.Load(filepath.Join(p.dir, tokenizerName)); err != nil {
		return Report{}, err
	}
	if err := tensors.Write(filepath.Join(p.dir, weightsName), c.entries, map[string]string{"format": "pt"}); err != nil {
		return Report{}, c.own(err)
	}
	if err := checkReadable(p.dir); err != nil {
		return Report{}, err
	}
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	return r, p.publish()
}

// The names of the files that an import writes.
const (
	configName     = "config.json"
	generationName = "generation_config.json"
	tokenizerName  = "tokenizer.json"
	tokConfigName  = "tokenizer_config.json"
	templateName   = "chat_template.jinja"
	weightsName    = "model.safetensors"
)

// textFiles makes everything but the weights.
func textFiles(cfg *config, tok *vocabulary) ([]textFile, error) {
	var files []textFile
	add := func(name string, v any) error {
		b, err := marshal(v)
		files = append(files, textFile{name, b})
		return err
	}
	for _, f := range []struct {
		name string
		v    any
	}{{configName, cfg.json(tok)}, {generationName, generation(tok)}, {tokConfigName, tok.config(cfg)}} {
		if err := add(f.name, f.v); err != nil {
			return nil, err
		}
	}
	b, err := tok.json()
	if err != nil {
		return nil, err
	}
	files = append(files, textFile{tokenizerName, b})
	if tok.template != "" {
		files = append(files, textFile{templateName, []byte(tok.template)})
	}
	return files, nil
}

// marshal writes JSON for people: indented, and with <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b jsonBuffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b, err
}

type jsonBuffer []byte

func (b *jsonBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

// checkReadable opens the new directory as every later stage will, so that an import that ends well leaves something they take.
func checkReadable(dir string) error {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	return c.Close()
}
