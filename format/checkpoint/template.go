package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// ChatTemplate is the text of the model's chat template: chat_template.jinja, else chat_template in
// tokenizer_config.json (a string, or a list of named templates of which "default" is taken), else "".
func (c *Checkpoint) ChatTemplate() (string, error) { return c.template, nil }

func (c *Checkpoint) readTemplate() error {
	path := filepath.Join(c.Dir, "chat_template.jinja")
	data, err := format.ReadFile(path, format.MaxConfigFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !utf8.Valid(data):
		return format.Inputf("%s: not UTF-8 text", path)
	default:
		c.template = string(data)
		c.files = append(c.files, path)
		return nil
	}
	tc := c.tokenizerConfig
	if tc == nil {
		return nil
	}
	raw, ok := tc.value("chat_template")
	if !ok {
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		var list []struct{ Name, Template string }
		if err := json.Unmarshal(raw, &list); err != nil {
			tc.fail("chat_template", "is neither a template nor a list of named ones")
		}
		for _, t := range list {
			if t.Name == "default" {
				c.template = t.Template
			}
		}
	} else {
		c.template, _ = tc.text("chat_template")
	}
	return tc.err
}
