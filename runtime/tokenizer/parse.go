package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// Load reads a tokenizer.json.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "tokenizer.model")); err == nil {
			return nil, format.Hint(format.Inputf("%s: not there; a tokenizer.model alone is not enough", path),
				"put the tokenizer.json of the same model beside it; Hugging Face repositories carry one")
		}
		return nil, format.Inputf("%s: not there", path)
	}
	if err != nil {
		return nil, format.IOf("%s: %v", path, err)
	}
	if info.Size() > MaxFile {
		return nil, format.Inputf("%s: %d bytes are more than the limit of %d", path, info.Size(), MaxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, format.IOf("%s: %v", path, err)
	}
	return Parse(path, data)
}

// Parse reads the bytes of a tokenizer.json; name is used in errors. data is not kept.
func Parse(name string, data []byte) (*Tokenizer, error) {
	if bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		return nil, format.Hint(format.Inputf("%s: this is a git-lfs pointer, the real file was not downloaded%s", name, lfsSize(data)), "run git lfs pull, or download the file itself")
	}
	if len(data) > MaxFile {
		return nil, format.Inputf("%s: %d bytes are more than the limit of %d", name, len(data), MaxFile)
	}
	if !json.Valid(data) {
		return nil, format.Inputf("%s: not valid JSON", name)
	}
	t, err := parse(data)
	if err != nil {
		return nil, format.Inputf("%s: %w", name, err)
	}
	return t, nil
}

func lfsSize(data []byte) string {
	for _, line := range bytes.Split(data[:min(len(data), 1024)], []byte("\n")) {
		if bytes.HasPrefix(line, []byte("size ")) && len(line) < 40 {
			return fmt.Sprintf(" (%s bytes)", line[len("size "):])
		}
	}
	return ""
}

func parse(data []byte) (*Tokenizer, error) {
	top, err := members(data, "the file")
	if err != nil {
		return nil, err
	}
	if top["model"] == nil {
		return nil, refuse("no model")
	}
	t := &Tokenizer{unk: -1}
	parts := map[string]*component{}
	for _, key := range []string{"normalizer", "pre_tokenizer", "post_processor", "decoder"} {
		if parts[key], err = parseComponent(key, top[key]); err != nil {
			return nil, err
		}
	}
	if t.normalizers, err = compileNormalizer(parts["normalizer"], 0); err != nil {
		return nil, err
	}
	if t.pre, t.byteLevel, err = compilePre(parts["pre_tokenizer"], 0); err != nil {
		return nil, err
	}
	if t.decoder, err = compileDecoder(parts["decoder"]); err != nil {
		return nil, err
	}
	if err := t.parseModel(top["model"]); err != nil {
		return nil, err
	}
	var added []addedToken
	if raw := top["added_tokens"]; raw != nil {
		if err := json.Unmarshal(raw, &added); err != nil {
			return nil, refuse("added_tokens: %v", err)
		}
	}
	if err := t.setAdded(added); err != nil {
		return nil, err
	}
	t.setMatchers()
	if t.before, t.after, err = t.compilePost(parts["post_processor"], 0); err != nil {
		return nil, err
	}
	return t, nil
}

// members returns the values of an object by key; null counts as absent.
func members(data []byte, what string) (map[string][]byte, error) {
	m := map[string][]byte{}
	object, err := eachMember(data, func(key, value []byte) error {
		k, _ := appendUnquoted(nil, key)
		if _, twice := m[string(k)]; twice {
			return refuse("%s: key %q comes twice", what, k)
		}
		if len(m) >= 256 {
			return refuse("%s: too many keys", what)
		}
		if string(value) == "null" {
			value = nil
		}
		m[string(k)] = value
		return nil
	})
	if err == nil && !object {
		err = refuse("%s is not an object", what)
	}
	return m, err
}

func (t *Tokenizer) parseModel(raw []byte) error {
	m, err := members(raw, "model")
	if err != nil {
		return err
	}
	var opt struct {
		Type         string   `json:"type"`
		Unk          *string  `json:"unk_token"`
		Prefix       *string  `json:"continuing_subword_prefix"`
		Suffix       *string  `json:"end_of_word_suffix"`
		Dropout      *float64 `json:"dropout"`
		FuseUnk      bool     `json:"fuse_unk"`
		ByteFallback bool     `json:"byte_fallback"`
		IgnoreMerges bool     `json:"ignore_merges"`
	}
	small := map[string]json.RawMessage{}
	for k, v := range m {
		if k != "vocab" && k != "merges" && v != nil {
			small[k] = v
		}
	}
	again, err := json.Marshal(small)
	if err == nil {
		err = json.Unmarshal(again, &opt)
	}
	switch {
	case err != nil:
		return refuse("model: %v", err)
	case opt.Type != "" && opt.Type != "BPE":
		return format.Hint(refuse("model type %q is not supported, only BPE is", opt.Type), "use a model whose tokenizer.json holds a BPE model")
	case opt.Prefix != nil && *opt.Prefix != "":
		return refuse("model: continuing_subword_prefix %q is not supported", *opt.Prefix)
	case opt.Suffix != nil && *opt.Suffix != "":
		return refuse("model: end_of_word_suffix %q is not supported", *opt.Suffix)
	case opt.Dropout != nil && *opt.Dropout != 0:
		return refuse("model: dropout %g is not supported", *opt.Dropout)
	case m["vocab"] == nil:
		return refuse("model: no vocab")
	case m["merges"] == nil:
		return refuse("model: no merges")
	}
	t.fuseUnk, t.byteFallback, t.ignoreMerges = opt.FuseUnk, opt.ByteFallback, opt.IgnoreMerges
	if err := t.parseVocab(m["vocab"]); err != nil {
		return err
	}
	if opt.Unk != nil {
		if t.unk = t.vocab.findString(*opt.Unk); t.unk < 0 {
			return refuse("model: unk_token %q is not in the vocabulary", *opt.Unk)
		}
	}
	for b := range 256 {
		t.fallback[b] = t.vocab.findString(fmt.Sprintf("<0x%02X>", b))
		t.byteID[b] = t.vocab.find(utf8.AppendRune(nil, byteRune[b]))
	}
	return t.parseMerges(m["merges"])
}

func (t *Tokenizer) parseVocab(raw []byte) error {
	count, size, top := 0, 0, int32(0)
	object, err := eachMember(raw, func(key, value []byte) error {
		id, ok := parseID(value)
		if !ok || id > maxID {
			return refuse("vocab: id %.20s of %.40s is not a number from 0 to %d", value, key, maxID)
		}
		if len(key) > maxToken {
			return refuse("vocab: the token with id %d is longer than %d bytes", id, maxToken)
		}
		count, size, top = count+1, size+len(key)-2, max(top, id)
		return nil
	})
	if err != nil {
		return err
	}
	if !object || count == 0 {
		return refuse("vocab is empty or not an object")
	}
	t.vocab = newVocab(count, top, size)
	var token []byte
	_, err = eachMember(raw, func(key, value []byte) error {
		id, _ := parseID(value)
		var ok bool
		if token, ok = appendUnquoted(token[:0], key); !ok || len(token) == 0 || len(token) > maxToken {
			return refuse("vocab: the token with id %d is empty or broken", id)
		}
		if !t.vocab.put(token, id) {
			return refuse("vocab: token %q or id %d comes twice", token, id)
		}
		return nil
	})
	t.size = int(top) + 1
	return err
}

func (t *Tokenizer) parseMerges(raw []byte) error {
	count := 0
	array, _ := eachElement(raw, func([]byte) error { count++; return nil })
	if !array {
		return refuse("merges is not a list")
	}
	t.merges = newMerges(count)
	if !t.byteLevel {
		t.joints = &joints{}
	}
	n := 0
	var text []byte // both parts of a rule, one after the other
	_, err := eachElement(raw, func(value []byte) error {
		n++
		var cut int
		var ok bool
		switch {
		case len(value) > 0 && value[0] == '"':
			if text, ok = appendUnquoted(text[:0], value); !ok {
				return refuse("merges: rule %d is broken", n)
			}
			if bytes.HasPrefix(text, []byte("#version")) {
				return nil
			}
			cut = bytes.IndexByte(text, ' ')
			if cut < 0 || bytes.IndexByte(text[cut+1:], ' ') >= 0 {
				return refuse("merges: rule %d %.60q is not two parts", n, text)
			}
			text = append(text[:cut], text[cut+1:]...)
		case len(value) > 0 && value[0] == '[':
			part := 0
			text = text[:0]
			_, err := eachElement(value, func(v []byte) error {
				if part == 1 {
					cut = len(text)
				}
				part++
				if text, ok = appendUnquoted(text, v); !ok || part > 2 {
					return refuse("merges: rule %d is not two strings", n)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if part != 2 {
				return refuse("merges: rule %d is not two strings", n)
			}
		default:
			return refuse("merges: rule %d is neither a string nor a pair", n)
		}
		a, b, c := t.vocab.find(text[:cut]), t.vocab.find(text[cut:]), t.vocab.find(text)
		if a < 0 || b < 0 || c < 0 {
			return refuse("merges: rule %d (%.40q, %.40q) has a part or a result that is not in the vocabulary", n, text[:cut], text[cut:])
		}
		t.merges.put(a, b, c)
		if t.joints != nil {
			t.joints.addToken(text)
		}
		return nil
	})
	return err
}

// compilePost returns the ids that go before and after a text.
func (t *Tokenizer) compilePost(c *component, depth int) (before, after []int32, err error) {
	if c == nil {
		return nil, nil, nil
	}
	switch c.Type {
	case "ByteLevel": // offsets only
		return nil, nil, nil
	case "Sequence":
		if depth >= maxDepth {
			return nil, nil, refuse("post_processor: Sequence nested deeper than %d", maxDepth)
		}
		for i := range c.Processors {
			b, a, err := t.compilePost(&c.Processors[i], depth+1)
			if err != nil {
				return nil, nil, err
			}
			before, after = append(b, before...), append(after, a...)
		}
		if len(before)+len(after) > maxAdded {
			return nil, nil, refuse("post_processor adds more than %d tokens", maxAdded)
		}
		return before, after, nil
	case "TemplateProcessing":
		inside := false
		for _, item := range c.Single {
			switch {
			case item.Sequence != nil && item.Sequence.ID == "A" && !inside:
				inside = true
			case item.SpecialToken != nil:
				special, ok := c.SpecialTokens[item.SpecialToken.ID]
				if !ok {
					return nil, nil, refuse("post_processor: %q is not among its special_tokens", item.SpecialToken.ID)
				}
				for _, id := range special.IDs {
					if _, ok := t.Token(id); !ok {
						return nil, nil, refuse("post_processor: id %d of %q has no token", id, item.SpecialToken.ID)
					}
				}
				if inside {
					after = append(after, special.IDs...)
				} else {
					before = append(before, special.IDs...)
				}
			default:
				return nil, nil, refuse("post_processor: a template other than one text and special tokens is not supported")
			}
		}
		if !inside {
			return nil, nil, refuse("post_processor: the template has no place for the text")
		}
		return before, after, nil
	}
	return nil, nil, refuse("post_processor %q is not supported", c.Type)
}
