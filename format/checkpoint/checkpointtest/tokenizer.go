package checkpointtest

import "strings"

// TokenizerSize is the number of tokens of Tokenizer: ids 0 to 319 without a gap.
const TokenizerSize = 320

// FirstByte is the id of the token of byte 0; byte b is FirstByte+b.
const FirstByte = 3

// The merges, each making the next id from 259 on: "ab" is 260 and "abc" 261.
const merges = `t+h a+b ab+c h+e th+e i+n e+r a+n r+e o+n a+t e+n n+d t+i e+s o+r t+e o+f e+d i+s i+t a+l a+r s+t t+o n+t n+g s+e
 h+a a+s o+u i+o l+e v+e c+o m+e d+e h+i r+i r+o i+c n+e e+a r+a c+e l+i c+h l+l b+e m+a s+i o+m u+r in+g Ġ+t Ġ+a Ġ+th Ġ+the Ġ+o Ġ+in an+d`

// Tokenizer is a byte-level BPE tokenizer.json: <unk> 0, <s> 1, </s> 2, the 256 bytes, then merges; nothing is added to texts.
func Tokenizer() map[string]any {
	vocab := map[string]int{"<unk>": 0, "<s>": 1, "</s>": 2}
	for b := range 256 {
		vocab[ByteToken(byte(b))] = FirstByte + b
	}
	var list []any
	for _, m := range strings.Fields(merges) {
		a, b, _ := strings.Cut(m, "+")
		vocab[a+b] = len(vocab)
		list = append(list, a+" "+b)
	}
	t := map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": list,
		},
		"added_tokens": []any{},
	}
	for id, s := range []string{"<unk>", "<s>", "</s>"} {
		AddToken(t, id, s, true)
	}
	return t
}

// AddToken adds an added token to a tokenizer.json.
func AddToken(t map[string]any, id int, content string, special bool) {
	list := t["added_tokens"].([]any)
	t["added_tokens"] = append(list, map[string]any{
		"id": id, "content": content, "special": special, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
	})
}

// ByteToken is the character that stands for a byte in byte-level vocabularies.
func ByteToken(b byte) string {
	printable := func(c int) bool { return c >= 0x21 && c <= 0x7e || c >= 0xa1 && c <= 0xac || c >= 0xae && c <= 0xff }
	if printable(int(b)) {
		return string(rune(b))
	}
	n := 0
	for c := range int(b) {
		if !printable(c) {
			n++
		}
	}
	return string(rune(256 + n))
}
