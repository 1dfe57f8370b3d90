package importer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"neuroprefetcher/format"
)

const (
	keyTokens = "tokenizer.ggml.tokens"
	keyTypes  = "tokenizer.ggml.token_type"
	keyScores = "tokenizer.ggml.scores"
	keyMerges = "tokenizer.ggml.merges"
	keyModel  = "tokenizer.ggml.model"
	keyPre    = "tokenizer.ggml.pre"
)

// maxTokenBytes bounds one token's text: the longest real ones are runs of spaces of a few hundred bytes.
const maxTokenBytes = 1024

// maxMerges bounds the merges that scores may stand for: a vocabulary of 256k pieces has about 600k. Tests lower it.
var maxMerges = 1 << 22

// The kinds of tokens in tokenizer.ggml.token_type.
const (
	tokenUndefined = iota
	tokenNormal
	tokenUnknown
	tokenControl
	tokenUserDefined
	tokenUnused
	tokenByte
)

// vocabulary is the tokenizer of the GGUF, checked.
type vocabulary struct {
	model  string // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
	pre    string
	style  preStyle // gpt2
	tokens []string // by id
	types  []int32  // by id
	merges [][2]string

	bos, eos, unk, pad int   // −1: none
	stops              []int // every id that ends a text, ascending
	addBOS, addEOS     bool
	spacePrefix        bool // llama: a text begins with a word-start mark
	template           string
}

// endTexts are control tokens that end a turn whatever the header names as the end token; llama.cpp recognises the same ones by their text.
var endTexts = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "<｜end▁of▁sentence｜>"}

func readTokenizer(m meta) (*vocabulary, error) {
	v := &vocabulary{}
	var ok bool
	var err error
	if v.model, ok, err = m.text(keyModel); err != nil {
		return nil, err
	} else if !ok {
		return nil, m.missing(keyModel)
	}
	if v.model != "gpt2" && v.model != "llama" {
		return nil, format.Inputf("%s: key %q: tokenizer %q is not supported (gpt2 and llama are)", m.path, keyModel, v.model)
	}
	if v.pre, ok, err = m.text(keyPre); err != nil {
		return nil, err
	}
	if v.model == "gpt2" {
		if !ok {
			return nil, format.Hint(format.Inputf("%s: key %q is missing: how text is split before merging is not known", m.path, keyPre), "convert the model again with a newer converter")
		}
		if v.style, ok = preStyles[v.pre]; !ok {
			return nil, format.Inputf("%s: key %q: pre-tokenizer %q is not supported", m.path, keyPre, v.pre)
		}
	}
	if err := v.readTokens(m); err != nil {
		return nil, err
	}
	if err := v.readSpecials(m); err != nil {
		return nil, err
	}
	if v.model == "gpt2" {
		err = v.readMerges(m)
	} else {
		err = v.deriveMerges(m)
	}
	if err != nil {
		return nil, err
	}
	if v.template, _, err = m.text("tokenizer.chat_template"); err != nil {
		return nil, err
	}
	return v, nil
}

// readTokens reads texts and types, and refuses texts that appear twice.
func (v *vocabulary) readTokens(m meta) error {
	var ok bool
	var err error
	if v.tokens, ok, err = array[string](m, keyTokens, "strings"); err != nil {
		return err
	} else if !ok || len(v.tokens) == 0 {
		return m.missing(keyTokens)
	}
	if v.types, ok, err = array[int32](m, keyTypes, "int32"); err != nil {
		return err
	} else if !ok {
		v.types = make([]int32, len(v.tokens))
	}
	v.types = slices.Clone(v.types)
	if len(v.types) != len(v.tokens) {
		return format.Inputf("%s: key %q: %d types for %d tokens", m.path, keyTypes, len(v.types), len(v.tokens))
	}
	seen := make(map[string]int, len(v.tokens))
	for id, s := range v.tokens {
		if len(s) > maxTokenBytes {
			return format.Inputf("%s: key %q: token %d has %d bytes, limit %d", m.path, keyTokens, id, len(s), maxTokenBytes)
		}
		if !utf8.ValidString(s) {
			return format.Inputf("%s: key %q: token %d is not UTF-8", m.path, keyTokens, id)
		}
		if t := v.types[id]; t < tokenUndefined || t > tokenByte {
			return format.Inputf("%s: key %q: token %d has the unknown type %d", m.path, keyTypes, id, t)
		}
		if v.types[id] == tokenByte && !isByteToken(s) {
			return format.Inputf("%s: key %q: token %d is %q, which is no byte token", m.path, keyTypes, id, s)
		}
		if s == "" { // no text: an id that is never produced
			v.types[id] = tokenUnused
			continue
		}
		if first, dup := seen[s]; dup {
			return format.Inputf("%s: key %q: tokens %d and %d are both %q", m.path, keyTokens, first, id, s)
		}
		seen[s] = id
	}
	return nil
}

// has tells which ids have a text that goes into the vocabulary. Unused ids only fill up the table.
func (v *vocabulary) has(id int) bool { return v.types[id] != tokenUnused }

func (v *vocabulary) texts() (n int) {
	for id := range v.tokens {
		if v.has(id) {
			n++
		}
	}
	return n
}

func (v *vocabulary) label() string {
	if v.pre == "" {
		return v.model
	}
	return v.model + "/" + v.pre
}

// readMerges reads "a b" pairs and holds them against the vocabulary.
func (v *vocabulary) readMerges(m meta) error {
	list, ok, err := array[string](m, keyMerges, "strings")
	if err != nil {
		return err
	}
	if !ok {
		return m.missing(keyMerges)
	}
	ids := make(map[string]bool, len(v.tokens))
	for id, s := range v.tokens {
		if v.has(id) {
			ids[s] = true
		}
	}
	v.merges = make([][2]string, len(list))
	for i, s := range list {
		k := -1
		if s != "" {
			k = strings.IndexByte(s[1:], ' ') + 1 // a part may itself begin with a space
		}
		if k < 1 || k == len(s)-1 {
			return format.Inputf("%s: key %q: entry %d, %q, is not a pair", m.path, keyMerges, i, s)
		}
		a, b := s[:k], s[k+1:]
		for _, part := range []string{a, b, a + b} {
			if !ids[part] {
				return format.Inputf("%s: key %q: entry %d, %q: %q is not in the vocabulary", m.path, keyMerges, i, s, part)
			}
		}
		v.merges[i] = [2]string{a, b}
	}
	return nil
}

// readSpecials reads ids, flags and what ends a text.
func (v *vocabulary) readSpecials(m meta) error {
	defaults := map[string]int{"bos": -1, "eos": -1, "unk": -1}
	if v.model == "llama" {
		defaults = map[string]int{"bos": 1, "eos": 2, "unk": 0} // what SentencePiece models of this kind have where the header is silent
	}
	var eot, eom int
	for _, f := range []struct {
		dst *int
		key string
		def int
	}{
		{&v.bos, "bos_token_id", defaults["bos"]}, {&v.eos, "eos_token_id", defaults["eos"]}, {&v.unk, "unknown_token_id", defaults["unk"]},
		{&v.pad, "padding_token_id", -1}, {&eot, "eot_token_id", -1}, {&eom, "eom_token_id", -1},
	} {
		key := "tokenizer.ggml." + f.key
		id, ok, err := m.integer(key)
		switch {
		case err != nil:
			return err
		case !ok && f.def < len(v.tokens):
			*f.dst = f.def
		case !ok, id < 0, id == 1<<32-1: // writers use all ones for none
			*f.dst = -1
		case id >= int64(len(v.tokens)):
			return format.Inputf("%s: key %q: %d is not one of the %d tokens", m.path, key, id, len(v.tokens))
		default:
			*f.dst = int(id)
		}
	}
	for _, id := range []int{v.bos, v.eos} { // without types, or with careless ones: these two are control tokens
		if id >= 0 && (v.types[id] == tokenNormal || v.types[id] == tokenUndefined) {
			v.types[id] = tokenControl
		}
	}
	for _, id := range []int{v.eos, eot, eom} {
		if id >= 0 {
			v.stops = append(v.stops, id)
		}
	}
	for id, s := range v.tokens {
		if v.types[id] == tokenControl && slices.Contains(endTexts, s) {
			v.stops = append(v.stops, id)
		}
	}
	slices.Sort(v.stops)
	v.stops = slices.Compact(v.stops)

	var err error
	if v.addBOS, err = m.flag("tokenizer.ggml.add_bos_token", v.model == "llama" || v.style.addBOS); err != nil {
		return err
	}
	if v.addEOS, err = m.flag("tokenizer.ggml.add_eos_token", false); err != nil {
		return err
	}
	if v.addBOS && v.bos < 0 {
		return m.missing("tokenizer.ggml.bos_token_id")
	}
	if v.addEOS && v.eos < 0 {
		return m.missing("tokenizer.ggml.eos_token_id")
	}
	if v.model == "llama" {
		if v.spacePrefix, err = m.flag("tokenizer.ggml.add_space_prefix", true); err != nil {
			return err
		}
		if strip, err := m.flag("tokenizer.ggml.remove_extra_whitespaces", false); err != nil {
			return err
		} else if strip {
			return format.Inputf("%s: key %q: not supported", m.path, "tokenizer.ggml.remove_extra_whitespaces")
		}
	}
	return nil
}

// token is the text of an id, or nil.
func (v *vocabulary) token(id int) any {
	if id < 0 {
		return nil
	}
	return v.tokens[id]
}

// config is tokenizer_config.json.
func (v *vocabulary) config(c *config) any {
	out := map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": c.positions, "clean_up_tokenization_spaces": false,
		"add_bos_token": v.addBOS, "add_eos_token": v.addEOS,
	}
	for name, id := range map[string]int{"bos_token": v.bos, "eos_token": v.eos, "unk_token": v.unk, "pad_token": v.pad} {
		if t := v.token(id); t != nil {
			out[name] = t
		}
	}
	return out
}

// special says whether a token is recognised in text before anything else, and whether it is left out of decoded text.
func special(kind int32) (added, hidden bool) {
	switch kind {
	case tokenControl, tokenUnknown:
		return true, true
	case tokenUserDefined:
		return true, false
	}
	return false, false
}

// isByteToken recognises "<0x00>" to "<0xFF>".
func isByteToken(s string) bool {
	const digits = "0123456789ABCDEF"
	return len(s) == 6 && s[:3] == "<0x" && s[5] == '>' && strings.IndexByte(digits, s[3]) >= 0 && strings.IndexByte(digits, s[4]) >= 0
}
