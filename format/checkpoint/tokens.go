package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
)

// begin checks a begin token; a negative id means none.
func (o *object) begin(id, vocab int, p *parsed) int {
	if id < 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("%s: bos_token_id %d is taken as none", o.file, id))
		return -1
	}
	if id >= vocab {
		o.fail("bos_token_id", "is %d, but the vocabulary has %d tokens", id, vocab)
		return -1
	}
	return id
}

// ends sorts end tokens; ids that the model cannot produce are dropped with a warning.
func (o *object) ends(ids []int, vocab int, p *parsed) []int {
	out := make([]int, 0, len(ids))
	for _, id := range ids {
		if id < 0 || id >= vocab {
			p.warnings = append(p.warnings, fmt.Sprintf("%s: eos_token_id %d is outside the vocabulary of %d and ignored", o.file, id, vocab))
			continue
		}
		out = append(out, id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// vocabulary is what checkpoint needs to know of tokenizer.json; package tokenizer reads the rest.
type vocabulary struct {
	added map[string]int
	model map[string]int
	last  int    // the largest id, -1 without tokens
	text  string // its token
}

func (v *vocabulary) id(token string) (int, bool) {
	if id, ok := v.added[token]; ok {
		return id, true
	}
	id, ok := v.model[token]
	return id, ok
}

func readVocabulary(dir string) (*vocabulary, error) {
	path := filepath.Join(dir, "tokenizer.json")
	data, err := format.ReadFile(path, format.MaxTokenizer)
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(filepath.Join(dir, "tokenizer.model")); serr == nil {
			return nil, format.Hint(format.Inputf("%s: missing; tokenizer.model alone is not enough", path), "fetch or convert to tokenizer.json")
		}
		return nil, format.Hint(format.Inputf("%s: missing", path), "fetch it from where the model's weights are from")
	}
	if err != nil {
		return nil, err
	}
	return parseVocabulary(path, data)
}

func parseVocabulary(path string, data []byte) (*vocabulary, error) {
	var t struct {
		Added []struct {
			ID      *int   `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Model struct {
			Type  string          `json:"type"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, format.Inputf("%s: %w", path, err)
	}
	if t.Model.Type != "" && t.Model.Type != "BPE" {
		return nil, format.Inputf("%s: model.type %q is not supported, only BPE is", path, t.Model.Type)
	}
	v := &vocabulary{added: map[string]int{}, last: -1}
	if !bytes.HasPrefix(bytes.TrimSpace(t.Model.Vocab), []byte("{")) {
		return nil, format.Inputf("%s: model.vocab is not an object of tokens", path)
	}
	if err := json.Unmarshal(t.Model.Vocab, &v.model); err != nil {
		return nil, format.Inputf("%s: model.vocab: %w", path, err)
	}
	note := func(token string, id int) error {
		if id < 0 {
			return format.Inputf("%s: token %q has the negative id %d", path, token, id)
		}
		if id > v.last || id == v.last && token < v.text { // map order must not show in messages
			v.last, v.text = id, token
		}
		return nil
	}
	for token, id := range v.model {
		if err := note(token, id); err != nil {
			return nil, err
		}
	}
	for _, a := range t.Added {
		if a.ID == nil {
			return nil, format.Inputf("%s: added token %q has no id", path, a.Content)
		}
		v.added[a.Content] = *a.ID
		if err := note(a.Content, *a.ID); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// gatherTokens completes BOS and EOS from the files beside config.json: the ends are the union of all that any of them
// names, the begin is the first that is named.
func (c *Checkpoint) gatherTokens(p *parsed, v *vocabulary) error {
	cfg := c.Config
	ends := slices.Clone(cfg.EOS)
	gen, err := c.optional("generation_config.json")
	if err != nil {
		return err
	}
	if gen != nil {
		ends = append(ends, gen.ends(gen.ids("eos_token_id"), cfg.Vocab, p)...)
		if ids := gen.ids("bos_token_id"); cfg.BOS < 0 && len(ids) > 0 {
			cfg.BOS = gen.begin(ids[0], cfg.Vocab, p)
		}
		if gen.err != nil {
			return gen.err
		}
	}
	if tc := c.tokenizerConfig; tc != nil {
		if id, ok := tc.token("eos_token", v, p); ok {
			ends = append(ends, id)
		}
		if id, ok := tc.token("bos_token", v, p); ok && cfg.BOS < 0 {
			cfg.BOS = id
		}
		if tc.err != nil {
			return tc.err
		}
	}
	slices.Sort(ends)
	cfg.EOS = slices.Compact(ends)
	if len(cfg.EOS) == 0 {
		p.warnings = append(p.warnings, c.Dir+": no file names an end token; generation ends by length only")
	}
	return nil
}

// token looks up a token that tokenizer_config.json names by its text, as a string or as an object with content.
func (o *object) token(key string, v *vocabulary, p *parsed) (int, bool) {
	raw, ok := o.value(key)
	if !ok {
		return 0, false
	}
	var text string
	if b := bytes.TrimSpace(raw); bytes.HasPrefix(b, []byte("{")) {
		s, given := o.sub(key).text("content")
		if !given {
			o.fail(key, "is %s, without the content of a token", short(raw))
			return 0, false
		}
		text = s
	} else if text, ok = o.text(key); !ok {
		return 0, false
	}
	if text == "" {
		return 0, false
	}
	id, ok := v.id(text)
	if !ok {
		p.warnings = append(p.warnings, fmt.Sprintf("%s: %s %q is not a token of tokenizer.json and ignored", o.file, key, text))
	}
	return id, ok
}

// optional opens a JSON file that need not exist, and notes that it belongs to the model.
func (c *Checkpoint) optional(name string) (*object, error) {
	path := filepath.Join(c.Dir, name)
	data, err := format.ReadFile(path, format.MaxConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := newObject(path, data)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, path)
	return o, nil
}
