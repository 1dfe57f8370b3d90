package importer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format/gguf/gguftest"
	"neuroprefetcher/runtime/tokenizer"
)

// fixture is a tokenizer.json of the Hugging Face library, with what it makes of texts.
type fixture struct {
	vocab  map[string]int
	tokens []string
	types  []int32
	merges [][2]string
	golden []struct {
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Special []int32 `json:"ids_special"`
		Decoded string  `json:"decoded"`
	}
	raw map[string]any
}

func loadFixture(t *testing.T, name string) fixture {
	t.Helper()
	dir := filepath.Join("..", "..", "runtime", "tokenizer", "testdata", name)
	var f fixture
	f.raw = readJSON(t, filepath.Join(dir, "tokenizer.json"))
	var file struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	f.vocab, f.merges = file.Model.Vocab, file.Model.Merges
	f.tokens, f.types = make([]string, len(f.vocab)), make([]int32, len(f.vocab))
	for s, id := range f.vocab {
		f.tokens[id], f.types[id] = s, tokenNormal
	}
	for _, a := range file.Added {
		f.types[a.ID] = tokenControl
	}
	in, err := os.Open(filepath.Join(dir, "golden.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<22)
	for s.Scan() {
		f.golden = append(f.golden, struct {
			Text    string  `json:"text"`
			IDs     []int32 `json:"ids"`
			Special []int32 `json:"ids_special"`
			Decoded string  `json:"decoded"`
		}{})
		if err := json.Unmarshal(s.Bytes(), &f.golden[len(f.golden)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.golden) < 20 {
		t.Fatalf("%s: %d texts", name, len(f.golden))
	}
	return f
}

// imported turns header keys into a tokenizer, through tokenizer.json.
func imported(t *testing.T, f *gguftest.File) (*tokenizer.Tokenizer, map[string]any) {
	t.Helper()
	kv := map[string]any{}
	for _, x := range f.KVs {
		kv[x.Key] = x.Value
	}
	v, err := readTokenizer(meta{"m.gguf", kv})
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.json()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse("tokenizer.json", b)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	return tok, raw
}

// TestByteLevel: tokenizers of the three byte-level families, given as GGUF keys, come back as the file they were made from and give its ids.
func TestByteLevel(t *testing.T) {
	for name, pre := range map[string]string{"smollm2": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2"} {
		x := loadFixture(t, name)
		merges := make([]string, len(x.merges))
		for i, m := range x.merges {
			merges[i] = m[0] + " " + m[1]
		}
		f := gguftest.New("llama").Set(keyModel, "gpt2").Set(keyPre, pre).Set(keyTokens, x.tokens).Set(keyTypes, x.types).Set(keyMerges, merges)
		f.Set("tokenizer.ggml.bos_token_id", uint32(0)).Set("tokenizer.ggml.eos_token_id", uint32(1)).Set("tokenizer.ggml.add_bos_token", true)
		tok, raw := imported(t, f)
		for _, key := range []string{"added_tokens", "normalizer", "pre_tokenizer", "post_processor"} {
			got, want := raw[key], x.raw[key]
			if key == "post_processor" { // the pair form may repeat or not the begin token: only single texts are used
				got, want = got.(map[string]any)["single"], want.(map[string]any)["single"]
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v, want %v", name, key, got, want)
			}
		}
		if got, want := raw["model"].(map[string]any)["ignore_merges"], x.raw["model"].(map[string]any)["ignore_merges"]; got != want {
			t.Errorf("%s: ignore_merges %v, want %v", name, got, want)
		}
		compareGolden(t, name, tok, x)
	}
}

func compareGolden(t *testing.T, name string, tok *tokenizer.Tokenizer, x fixture) {
	t.Helper()
	for _, g := range x.golden {
		if got := tok.Encode(g.Text, false); !slices.Equal(got, g.IDs) {
			t.Errorf("%s: %q gives %v, want %v", name, g.Text, got, g.IDs)
		}
		if got := tok.Encode(g.Text, true); !slices.Equal(got, g.Special) {
			t.Errorf("%s: %q with specials gives %v, want %v", name, g.Text, got, g.Special)
		}
		if got := tok.Decode(g.IDs, true); got != g.Decoded {
			t.Errorf("%s: %v reads %q, want %q", name, g.IDs, got, g.Decoded)
		}
	}
}

// TestSentencePiece: a SentencePiece-like tokenizer with byte fallback, given as pieces, scores and types, gives the ids of the file it was made from.
func TestSentencePiece(t *testing.T) {
	x := loadFixture(t, "llama2")
	// The trainer of the fixture made one merge for each piece, in order; SentencePiece stores that order as falling scores.
	scores := make([]float32, len(x.tokens))
	rank := map[string]int{}
	for i, m := range x.merges {
		rank[m[0]+m[1]] = i
	}
	for id, s := range x.tokens {
		if r, ok := rank[s]; ok {
			scores[id] = -float32(r)
		} else if x.types[id] == tokenNormal {
			scores[id] = -float32(len(x.merges) + id)
		}
		if strings.HasPrefix(s, "<0x") {
			x.types[id], scores[id] = tokenByte, 0
		}
	}
	x.types[0] = tokenUnknown
	f := gguftest.New("llama").Set(keyModel, "llama").Set(keyTokens, x.tokens).Set(keyTypes, x.types).Set(keyScores, scores)
	tok, raw := imported(t, f) // begin token, space prefix and ids by the defaults of this kind
	for _, key := range []string{"added_tokens", "normalizer", "pre_tokenizer", "decoder"} {
		if !reflect.DeepEqual(raw[key], x.raw[key]) {
			t.Errorf("%s is %v, want %v", key, raw[key], x.raw[key])
		}
	}
	got, want := raw["model"].(map[string]any), x.raw["model"].(map[string]any)
	for _, key := range []string{"unk_token", "fuse_unk", "byte_fallback"} {
		if got[key] != want[key] {
			t.Errorf("%s is %v, want %v", key, got[key], want[key])
		}
	}
	compareGolden(t, "llama2", tok, x)

	// Without the prefix a text is taken as it is, and nothing is stripped from what is read back.
	plain, _ := imported(t, f.Set("tokenizer.ggml.add_space_prefix", false).Set("tokenizer.ggml.add_bos_token", false).Set("tokenizer.ggml.add_eos_token", true))
	a, _ := plain.ID("a")
	if got := plain.Encode("a", true); !slices.Equal(got, []int32{a, 2}) {
		t.Errorf("%v, want %v", got, []int32{a, 2})
	}
	if got := plain.Decode(plain.Encode(" a", false), true); got != " a" {
		t.Errorf("%q, want %q", got, " a")
	}
}

// TestDerivedMerges compares with the list that Hugging Face's converter makes (testdata/make_merges.py), ties included.
func TestDerivedMerges(t *testing.T) {
	var x struct {
		Tokens []string
		Types  []int32
		Scores []float32
		Merges [][2]string
	}
	b, err := os.ReadFile(filepath.Join("testdata", "spm_merges.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	v := &vocabulary{model: "llama", tokens: x.Tokens, types: x.Types}
	if err := v.deriveMerges(meta{"m.gguf", map[string]any{keyScores: x.Scores}}); err != nil {
		t.Fatal(err)
	}
	if len(v.merges) != len(x.Merges) {
		t.Fatalf("%d merges, want %d", len(v.merges), len(x.Merges))
	}
	for i := range v.merges {
		if v.merges[i] != x.Merges[i] {
			t.Fatalf("merge %d is %q, want %q", i, v.merges[i], x.Merges[i])
		}
	}
}

// TestTokenKinds: what each token type becomes.
func TestTokenKinds(t *testing.T) {
	f := gguftest.New("llama")
	byteLevelKeys(f, "gpt-2", 270)
	tokens := slices.Clone(value[[]string](f, keyTokens))
	types := slices.Clone(value[[]int32](f, keyTypes))
	tokens[263], types[263] = "<tool>", tokenUserDefined
	tokens[264], types[264] = "<|x|>", tokenUnknown
	tokens[265], types[265] = "", tokenNormal // no text: never produced
	f.Set(keyTokens, tokens).Set(keyTypes, types)
	tok, raw := imported(t, f)
	if got := tok.Encode("a<tool>the</s>", false); !slices.Equal(got, []int32{id(tok, "a"), 263, id(tok, "the"), 2}) {
		t.Errorf("%v", got)
	}
	if got := tok.Decode([]int32{263, 2, 264, 265, 266}, true); got != "<tool>" {
		t.Errorf("%q", got)
	}
	if _, ok := tok.Token(266); ok { // "[PAD266]"
		t.Error("an unused token has a text")
	}
	if tok.Size() != 265 || raw["post_processor"] != nil {
		t.Errorf("size %d, post-processor %v", tok.Size(), raw["post_processor"])
	}
	if got := tok.EncodePlain("</s>"); slices.Contains(got, 2) {
		t.Errorf("plain text gives the control token: %v", got)
	}
}

func id(t *tokenizer.Tokenizer, s string) int32 { i, _ := t.ID(s); return i }

func value[T any](f *gguftest.File, key string) T {
	for _, x := range f.KVs {
		if x.Key == key {
			return x.Value.(T)
		}
	}
	panic(key)
}

// TestDigits: the pre-tokenizer of SmolLM2 splits numbers into digits, that of GPT-2 does not.
func TestDigits(t *testing.T) {
	for pre, want := range map[string]string{"smollm": "1|9|8|4", "gpt-2": "1984", "default": "1984", "starcoder": "1|9|8|4", "qwen2": "1|9|8|4", "tekken": "1|9|8|4", "llama-bpe": "198|4"} {
		f := gguftest.New("llama")
		byteLevelKeys(f, pre, 280)
		tokens, types := slices.Clone(value[[]string](f, keyTokens)), slices.Clone(value[[]int32](f, keyTypes))
		for i, s := range []string{"19", "198", "1984"} {
			tokens[270+i], types[270+i] = s, tokenNormal
		}
		f.Set(keyTokens, tokens).Set(keyTypes, types).Set(keyMerges, append(value[[]string](f, keyMerges), "1 9", "19 8", "198 4"))
		tok, _ := imported(t, f)
		var got []string
		for _, i := range tok.Encode("1984", false) {
			s, _ := tok.Token(i)
			got = append(got, s)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q, want %s", pre, got, want)
		}
	}
}

// TestEveryPreStyle: the runtime's tokenizer takes what is written for every pre-tokenizer that is not refused.
func TestEveryPreStyle(t *testing.T) {
	for _, pre := range slices.Sorted(maps.Keys(preStyles)) {
		f := gguftest.New("llama")
		byteLevelKeys(f, pre, 263)
		tok, _ := imported(t, f)
		if got := tok.Decode(tok.Encode("the Cat's 12 naïve\n\n  x日本", false), true); got != "the Cat's 12 naïve\n\n  x日本" {
			t.Errorf("%s: reads back %q", pre, got)
		}
		if want := preStyles[pre].addBOS; tok.AddsBOS() != want {
			t.Errorf("%s: begin token added: %v, want %v", pre, tok.AddsBOS(), want)
		}
	}
}

// TestMergesWithSpaces: a part that holds a space is written as a pair.
func TestMergesWithSpaces(t *testing.T) {
	v := &vocabulary{merges: [][2]string{{"a", "b"}, {" ", "c"}}}
	if got := fmt.Sprint(v.mergesJSON()); got != fmt.Sprint(v.merges) {
		t.Error(got)
	}
	v.merges = v.merges[:1]
	if got := fmt.Sprint(v.mergesJSON()); got != "[a b]" {
		t.Error(got)
	}
}

// TestTokenizerRefused: each fault names the key.
func TestTokenizerRefused(t *testing.T) {
	for _, c := range []struct {
		what   string
		kind   string
		change func(*gguftest.File)
		want   string
	}{
		{"no model", "gpt2", func(f *gguftest.File) { f.Delete(keyModel) }, keyModel},
		{"other model", "gpt2", func(f *gguftest.File) { f.Set(keyModel, "bert") }, `"bert"`},
		{"model of another kind", "gpt2", func(f *gguftest.File) { f.Set(keyModel, uint32(1)) }, keyModel},
		{"no pre-tokenizer", "gpt2", func(f *gguftest.File) { f.Delete(keyPre) }, keyPre},
		{"unknown pre-tokenizer", "gpt2", func(f *gguftest.File) { f.Set(keyPre, "deepseek-llm") }, `"deepseek-llm"`},
		{"no tokens", "gpt2", func(f *gguftest.File) { f.Delete(keyTokens) }, keyTokens},
		{"tokens of another kind", "gpt2", func(f *gguftest.File) { f.Set(keyTokens, []int32{1}) }, keyTokens},
		{"token twice", "gpt2", func(f *gguftest.File) { f.Set(keyTokens, append(value[[]string](f, keyTokens)[:269:269], "an")) }, `are both "an"`},
		{"token not UTF-8", "gpt2", func(f *gguftest.File) { f.Set(keyTokens, append(value[[]string](f, keyTokens)[:269:269], "\xff")) }, `token 269 is not UTF-8`},
		{"token too long", "gpt2", func(f *gguftest.File) {
			f.Set(keyTokens, append(value[[]string](f, keyTokens)[:269:269], strings.Repeat("x", 5000)))
		}, `token 269 has 5000 bytes`},
		{"too few types", "gpt2", func(f *gguftest.File) { f.Set(keyTypes, []int32{1, 1}) }, keyTypes},
		{"unknown type", "gpt2", func(f *gguftest.File) {
			x := slices.Clone(value[[]int32](f, keyTypes))
			x[5] = 9
			f.Set(keyTypes, x)
		}, `token 5 has the unknown type 9`},
		{"byte token without a byte", "llama", func(f *gguftest.File) {
			x := slices.Clone(value[[]int32](f, keyTypes))
			x[36] = tokenByte
			f.Set(keyTypes, x)
		}, `token 36 is "!", which is no byte token`},
		{"no merges", "gpt2", func(f *gguftest.File) { f.Delete(keyMerges) }, keyMerges},
		{"merge of one part", "gpt2", func(f *gguftest.File) { f.Set(keyMerges, []string{"t h", "the"}) }, `entry 1, "the"`},
		{"empty merge", "gpt2", func(f *gguftest.File) { f.Set(keyMerges, []string{""}) }, `entry 0`},
		{"merge not in vocabulary", "gpt2", func(f *gguftest.File) { f.Set(keyMerges, []string{"q z"}) }, `"qz" is not in the vocabulary`},
		{"begin token out of range", "gpt2", func(f *gguftest.File) { f.Set("tokenizer.ggml.bos_token_id", uint32(270)) }, "bos_token_id"},
		{"begin token missing", "gpt2", func(f *gguftest.File) {
			f.Delete("tokenizer.ggml.bos_token_id").Set("tokenizer.ggml.add_bos_token", true)
		}, "bos_token_id"},
		{"end token missing", "gpt2", func(f *gguftest.File) {
			f.Delete("tokenizer.ggml.eos_token_id").Set("tokenizer.ggml.add_eos_token", true)
		}, "eos_token_id"},
		{"flag of another kind", "gpt2", func(f *gguftest.File) { f.Set("tokenizer.ggml.add_bos_token", uint32(1)) }, "add_bos_token"},
		{"template of another kind", "gpt2", func(f *gguftest.File) { f.Set("tokenizer.chat_template", []string{"x"}) }, "chat_template"},
		{"no scores", "llama", func(f *gguftest.File) { f.Delete(keyScores) }, keyScores},
		{"too few scores", "llama", func(f *gguftest.File) { f.Set(keyScores, []float32{1}) }, keyScores},
		{"score is NaN", "llama", func(f *gguftest.File) {
			x := make([]float32, 270)
			x[7] = float32(math.NaN())
			f.Set(keyScores, x)
		}, "score of token 7 is NaN"},
		{"strips whitespace", "llama", func(f *gguftest.File) { f.Set("tokenizer.ggml.remove_extra_whitespaces", true) }, "remove_extra_whitespaces"},
		{"normalisation table", "llama", func(f *gguftest.File) { f.Set("tokenizer.ggml.precompiled_charsmap", []uint8{1}) }, "precompiled_charsmap"},
	} {
		f := gguftest.New("llama")
		byteLevelKeys(f, "gpt-2", 270)
		f.Set(keyModel, c.kind)
		if c.kind == "llama" {
			f.Set(keyScores, make([]float32, 270))
		}
		c.change(f)
		kv := map[string]any{}
		for _, x := range f.KVs {
			kv[x.Key] = x.Value
		}
		_, err := readTokenizer(meta{"m.gguf", kv})
		if !isRefusal(err, "m.gguf", c.want) {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
	}
}

func fuzzTokenizer(t *testing.T, model, pre, tokens, merge string, types []byte, bos, eos uint32, add bool) {
	list := strings.Split(tokens, " ")
	kinds, scores := make([]int32, len(types)), make([]float32, len(types))
	for i, b := range types {
		kinds[i], scores[i] = int32(b&7), -float32(b>>3)
	}
	v, err := readTokenizer(meta{"m.gguf", map[string]any{
		keyModel: model, keyPre: pre, keyTokens: list, keyTypes: kinds, keyScores: scores, keyMerges: []string{merge}, "tokenizer.ggml.add_bos_token": add,
		"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.eos_token_id": eos, "tokenizer.ggml.unknown_token_id": bos ^ eos, "tokenizer.ggml.add_eos_token": !add,
	}})
	if err != nil {
		if !isRefusal(err, "m.gguf", "") {
			t.Fatal(err)
		}
		return
	}
	b, err := v.json()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Fatalf("not JSON: %s", b)
	}
	tok, err := tokenizer.Parse("tokenizer.json", b)
	if err != nil {
		return // what the runtime refuses, Import refuses
	}
	for _, s := range list {
		tok.Decode(tok.Encode(s, true), false)
	}
}

// TestMergeLimit: runs of one letter can be split anywhere, so that few pieces make many merges.
func TestMergeLimit(t *testing.T) {
	defer func(n int) { maxMerges = n }(maxMerges)
	maxMerges = 1000
	v := &vocabulary{model: "llama"}
	for n := 1; n <= 60; n++ {
		v.tokens, v.types = append(v.tokens, strings.Repeat("a", n)), append(v.types, tokenNormal)
	}
	if err := v.deriveMerges(meta{"m.gguf", map[string]any{keyScores: make([]float32, 60)}}); !isRefusal(err, "m.gguf", "more than 1000 merges") {
		t.Error(err)
	}
}
