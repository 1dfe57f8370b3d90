package importer

import (
	"bytes"
	"encoding/json"
	"strings"

	"neuroprefetcher/format"
)

// The parts of tokenizer.json. Field order is that of Hugging Face's files.
type (
	tokenizerFile struct {
		Version       string       `json:"version"`
		Truncation    any          `json:"truncation"`
		Padding       any          `json:"padding"`
		Added         []addedToken `json:"added_tokens"`
		Normalizer    any          `json:"normalizer"`
		PreTokenizer  any          `json:"pre_tokenizer"`
		PostProcessor any          `json:"post_processor"`
		Decoder       any          `json:"decoder"`
		Model         bpeModel     `json:"model"`
	}
	addedToken struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	bpeModel struct {
		Type          string    `json:"type"`
		Dropout       any       `json:"dropout"`
		Unk           any       `json:"unk_token"`
		WordPrefix    any       `json:"continuing_subword_prefix"`
		WordSuffix    any       `json:"end_of_word_suffix"`
		FuseUnk       bool      `json:"fuse_unk"`
		ByteFallback  bool      `json:"byte_fallback"`
		IgnoreMerges  bool      `json:"ignore_merges"`
		Vocab         vocabJSON `json:"vocab"`
		MergesWritten any       `json:"merges"`
	}
	// vocabJSON writes token → id in the order of ids.
	vocabJSON struct{ v *vocabulary }
)

func (j vocabJSON) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for id, s := range j.v.tokens {
		if !j.v.has(id) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		if err := e.Encode(s); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(id); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// json is tokenizer.json.
func (v *vocabulary) json() ([]byte, error) {
	f := tokenizerFile{Version: "1.0", Added: []addedToken{}, Model: bpeModel{Type: "BPE", Vocab: vocabJSON{v}, MergesWritten: v.mergesJSON()}}
	for id, s := range v.tokens {
		if added, hidden := special(v.types[id]); added {
			f.Added = append(f.Added, addedToken{ID: id, Content: s, Special: hidden})
		}
	}
	if v.model == "gpt2" {
		f.Normalizer, f.PreTokenizer, f.Model.IgnoreMerges = v.style.normalizer, v.style.pre, v.style.ignoreMerges
		f.Decoder = byteLevel(true)
	} else {
		v.sentencePiece(&f)
	}
	f.PostProcessor = v.postProcessor()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		return nil, err
	}
	if b.Len() > format.MaxTokenizer {
		return nil, format.Inputf("%s: makes a %s of %d bytes, limit %d", keyTokens, tokenizerName, b.Len(), format.MaxTokenizer)
	}
	return b.Bytes(), nil
}

// mergesJSON writes "a b" strings, which every reader takes, or pairs where a part holds a space.
func (v *vocabulary) mergesJSON() any {
	for _, m := range v.merges {
		if strings.Contains(m[0]+m[1], " ") {
			return v.merges
		}
	}
	out := make([]string, len(v.merges))
	for i, m := range v.merges {
		out[i] = m[0] + " " + m[1]
	}
	return out
}

// sentencePiece sets what a SentencePiece BPE model has in tokenizer.json: spaces become word-start marks, with one more before each text that follows a
// special token or begins the input, as the models of this kind were trained.
func (v *vocabulary) sentencePiece(f *tokenizerFile) {
	const mark = "▁"
	marks := map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": mark}
	back := map[string]any{"type": "Replace", "pattern": map[string]any{"String": mark}, "content": " "}
	decoders := []any{back}
	if v.byteFallback() {
		f.Model.ByteFallback = true
		decoders = append(decoders, map[string]any{"type": "ByteFallback"})
	}
	decoders = append(decoders, map[string]any{"type": "Fuse"})
	f.Normalizer = marks
	if v.spacePrefix {
		f.Normalizer = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Prepend", "prepend": mark}, marks}}
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	f.Decoder = map[string]any{"type": "Sequence", "decoders": decoders}
	f.Model.Unk, f.Model.FuseUnk = v.token(v.unk), true
}

// postProcessor adds the begin and end tokens that the header asks for.
func (v *vocabulary) postProcessor() any {
	if !v.addBOS && !v.addEOS {
		return nil
	}
	piece := func(id int) any {
		return map[string]any{"SpecialToken": map[string]any{"id": v.tokens[id], "type_id": 0}}
	}
	text := func(s string) any { return map[string]any{"Sequence": map[string]any{"id": s, "type_id": 0}} }
	tokens := map[string]any{}
	wrap := func(s string) []any {
		var out []any
		add := func(on bool, id int) {
			if on {
				out = append(out, piece(id))
				tokens[v.tokens[id]] = map[string]any{"id": v.tokens[id], "ids": []int{id}, "tokens": []string{v.tokens[id]}}
			}
		}
		add(v.addBOS, v.bos)
		out = append(out, text(s))
		add(v.addEOS, v.eos)
		return out
	}
	single := wrap("A")
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": append(wrap("A"), wrap("B")...), "special_tokens": tokens}
}
