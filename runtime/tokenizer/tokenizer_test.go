package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"neuroprefetcher/format"
)

// small builds a tokenizer.json from parts; vocabulary a, b, c, … and what is given.
func small(model, rest string) string {
	if rest != "" {
		rest = "," + rest
	}
	return `{"model":{"type":"BPE",` + model + `}` + rest + `}`
}

func parseSmall(t *testing.T, model, rest string) *Tokenizer {
	t.Helper()
	tok, err := Parse("small", []byte(small(model, rest)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

const abc = `"vocab":{"a":0,"b":1,"c":2,"ab":260,"abc":261,"a b":262,"a bc":263," ":3,"s":4,"x":5}`

func TestMergeForms(t *testing.T) {
	for _, c := range []struct {
		model, text string
		want        []int32
	}{
		{abc + `,"merges":["a b"]`, "abc", []int32{260, 2}},
		{abc + `,"merges":[["a","b"]]`, "abc", []int32{260, 2}},
		{abc + `,"merges":[["a","b"]],"ignore_merges":true`, "abc", []int32{261}},
		{abc + `,"merges":["a b",["ab","c"]]`, "abc", []int32{261}},
		{abc + `,"merges":["#version: 0.2","a b"]`, "abc", []int32{260, 2}},
		{abc + `,"merges":[["a b","c"]]`, "a bc", []int32{0, 3, 1, 2}}, // the part with a space is not reachable itself
		{abc + `,"merges":[["a b","c"]],"ignore_merges":true`, "a bc", []int32{263}},
		{abc + `,"merges":[]`, "abc", []int32{0, 1, 2}},
		{abc + `,"merges":[]`, "aéb", []int32{0, 1}}, // no unknown token: dropped, as the reference does
	} {
		tok := parseSmall(t, c.model, "")
		if got := tok.Encode(c.text, false); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %v, want %v", c.model, c.text, got, c.want)
		}
	}
}

func TestGapsInIDs(t *testing.T) {
	tok := parseSmall(t, abc+`,"merges":[]`, `"added_tokens":[{"id":319,"content":"<x>","special":true}],"decoder":{"type":"Fuse"}`)
	if tok.Size() != 320 {
		t.Errorf("size %d", tok.Size())
	}
	if got := tok.Encode("a<x>b", false); !slices.Equal(got, []int32{0, 319, 1}) {
		t.Errorf("ids %v", got)
	}
	if got := tok.Decode([]int32{0, 318, 100, -1, 1 << 30, 319, 1}, false); got != "a<x>b" {
		t.Errorf("text %q", got)
	}
	if got := tok.Decode([]int32{0, 319, 1}, true); got != "ab" {
		t.Errorf("text %q", got)
	}
	for _, id := range []int32{310, -1, 320, 1 << 30} {
		if s, ok := tok.Token(id); ok || tok.IsSpecial(id) {
			t.Errorf("id %d has token %q", id, s)
		}
	}
	if id, ok := tok.ID("<x>"); id != 319 || !ok {
		t.Errorf("id %d %v", id, ok)
	}
	if _, ok := tok.ID("nothing"); ok {
		t.Error("a token that is not there has an id")
	}
}

// byteTokens is a tokenizer of single bytes, spelt either way.
func byteTokens(t *testing.T, level bool) *Tokenizer {
	vocab := map[string]int{}
	for b := range 256 {
		if level {
			vocab[string(byteRune[b])] = b
		} else {
			vocab[fmt.Sprintf("<0x%02X>", b)] = b
		}
	}
	v, _ := json.Marshal(vocab)
	if level {
		return parseSmall(t, `"merges":[],"vocab":`+string(v), `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}`)
	}
	return parseSmall(t, `"merges":[],"byte_fallback":true,"vocab":`+string(v), `"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]}`)
}

func TestStreamHoldsOnlyUnfinishedCharacters(t *testing.T) {
	for _, c := range []struct {
		bytes           string
		level, fallback []string // what each Push and then Flush gives
	}{
		{"\xF0\x9F\x98\x80", []string{"", "", "", "😀", ""}, []string{"", "", "", "😀", ""}},
		{"\xF0\x9F", []string{"", "", "�"}, []string{"", "", "��"}},
		{"\xF0\x9FA", []string{"", "", "�A", ""}, []string{"", "", "��A", ""}},
		{"\xC0\x80", []string{"�", "�", ""}, []string{"�", "�", ""}},
		{"\xED\xA0\x80", []string{"", "��", "�", ""}, []string{"", "��", "�", ""}},
		{"\xFF", []string{"�", ""}, []string{"�", ""}},
		{"ab", []string{"a", "b", ""}, []string{"a", "b", ""}},
		{"\xE4\xBD\xA0\xE4", []string{"", "", "你", "", "�"}, []string{"", "", "你", "", "�"}},
		{"\xF4\x8F\xBF\xBF\xF4\x90", []string{"", "", "", "\U0010FFFF", "", "��", ""}, []string{"", "", "", "\U0010FFFF", "", "��", ""}},
	} {
		for _, level := range []bool{true, false} {
			want := c.fallback
			if level {
				want = c.level
			}
			tok := byteTokens(t, level)
			s := tok.NewStream(true)
			var got []string
			var ids []int32
			for _, b := range []byte(c.bytes) {
				got = append(got, s.Push(int32(b)))
				ids = append(ids, int32(b))
			}
			got = append(got, s.Flush())
			if !slices.Equal(got, want) {
				t.Errorf("% x byte level %v: %q, want %q", c.bytes, level, got, want)
			}
			checkStream(t, tok, ids, true)
			if again := s.Push('A'); again != "A" || s.Flush() != "" {
				t.Errorf("% x: the stream is not fresh after Flush: %q", c.bytes, again)
			}
		}
	}
}

func TestSingleWordAndStrips(t *testing.T) {
	added := func(flags string) *Tokenizer {
		return parseSmall(t, abc+`,"merges":[]`, `"added_tokens":[{"id":260,"content":"ab",`+flags+`"special":false}]`)
	}
	for _, c := range []struct {
		flags, text string
		want        []int32
	}{
		{`"single_word":true,`, "ab", []int32{260}},
		{`"single_word":true,`, "xab", []int32{5, 0, 1}},
		{`"single_word":true,`, "abx", []int32{0, 1, 5}},
		{`"single_word":true,`, "x ab x", []int32{5, 3, 260, 3, 5}},
		{`"lstrip":true,`, "x  ab  x", []int32{5, 260, 3, 3, 5}},
		{`"rstrip":true,`, "x  ab  x", []int32{5, 3, 3, 260, 5}},
		{`"rstrip":true,"lstrip":true,`, " ab  ab ", []int32{260, 260}},
	} {
		if got := added(c.flags).Encode(c.text, false); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %v, want %v", c.flags, c.text, got, c.want)
		}
	}
}

// The word-start mark goes before every piece between control tokens, before the text only, or nowhere; old files say so with
// add_prefix_space.
func TestMetaspaceSchemes(t *testing.T) {
	const vocab = `"vocab":{"▁":0,"a":1,"b":2,"<s>":3},"merges":[]`
	for _, c := range []struct {
		keys string
		want []int32 // of "a<s>b"
	}{
		{`,"prepend_scheme":"always"`, []int32{0, 1, 3, 0, 2}},
		{`,"prepend_scheme":"first"`, []int32{0, 1, 3, 2}},
		{`,"prepend_scheme":"never"`, []int32{1, 3, 2}},
		{`,"prepend_scheme":"first","add_prefix_space":true`, []int32{0, 1, 3, 2}},
		{`,"prepend_scheme":"never","add_prefix_space":false`, []int32{1, 3, 2}},
		{`,"add_prefix_space":true`, []int32{0, 1, 3, 0, 2}},
		{`,"add_prefix_space":false`, []int32{1, 3, 2}},
		{``, []int32{0, 1, 3, 0, 2}},
	} {
		tok := parseSmall(t, vocab, `"added_tokens":[{"id":3,"content":"<s>","special":true}],"pre_tokenizer":{"type":"Metaspace","replacement":"▁"`+c.keys+`}`)
		if got := tok.Encode("a<s>b", false); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.keys, got, c.want)
		}
		// A mark that is there already is not doubled; a text that begins with a control token is not its first piece.
		want := []int32{3, 2}
		if c.want[0] == 0 && len(c.want) == 5 {
			want = []int32{3, 0, 2}
		}
		if got := tok.Encode("<s>b", false); !slices.Equal(got, want) {
			t.Errorf("%s: <s>b is %v, want %v", c.keys, got, want)
		}
		if got := tok.Encode(" b", false); !slices.Equal(got, []int32{0, 2}) {
			t.Errorf("%s: a space and b are %v", c.keys, got)
		}
	}
}

func TestBOSOnce(t *testing.T) {
	tok := load(t, "testdata/llama2/tokenizer.json")
	bos, _ := tok.ID("<s>")
	count := func(ids []int32) (n int) {
		for _, id := range ids {
			if id == bos {
				n++
			}
		}
		return n
	}
	if !tok.AddsBOS() {
		t.Fatal("does not add a BOS")
	}
	if ids, had := tok.EncodeCompletion("hello"); had || count(ids) != 1 || !slices.Equal(ids, tok.Encode("hello", true)) {
		t.Errorf("%v %v", ids, had)
	}
	if ids, had := tok.EncodeCompletion("<s>hello"); !had || count(ids) != 1 || !slices.Equal(ids, tok.Encode("<s>hello", false)) {
		t.Errorf("%v %v", ids, had)
	}
}

// Segments give the ids of the whole text, wherever they are cut; control tokens in plain ones are text.
func TestSegments(t *testing.T) {
	for _, style := range []string{"llama2", "llama3", "qwen2", "smollm2", "added-spm"} {
		tok := load(t, "testdata/"+style+"/tokenizer.json")
		control := tok.ControlTokens()[0]
		r := rand.New(rand.NewPCG(21, 22))
		for range 300 {
			text := randomText(r, 30)
			var segs []Segment
			for rest := text; rest != ""; {
				n := r.IntN(len(rest)) + 1
				for n < len(rest) && rest[n]&0xC0 == 0x80 {
					n++
				}
				segs = append(segs, Segment{rest[:n], false})
				rest = rest[n:]
			}
			if got, want := tok.EncodeSegments(segs, true), tok.Encode(text, true); !slices.Equal(got, want) {
				t.Fatalf("%s %q cut to %v: %v, want %v", style, text, segs, got, want)
			}
		}
		id, _ := tok.ID(control)
		got := tok.EncodeSegments([]Segment{{Text: control}, {Text: "x" + control + "y", Plain: true}, {Text: control}}, false)
		n := 0
		for _, i := range got {
			if i == id {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%s: %d control tokens of 2 in %v", style, n, got)
		}
		if text := tok.Decode(got, false); text != control+"x"+control+"y"+control && !strings.HasPrefix(style, "added") && style != "llama2" {
			t.Errorf("%s: %q", style, text)
		}
	}
}

// A control token that is searched in normalized text is held back by plain segments too.
func TestPlainNormalizedControl(t *testing.T) {
	tok := parseSmall(t, abc+`,"merges":[]`, `"added_tokens":[{"id":261,"content":"abc","normalized":true,"special":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":" "},{"type":"Replace","pattern":{"String":"s"},"content":"xx"}]}`)
	if got := tok.Encode("s abc", false); !slices.Equal(got, []int32{3, 5, 5, 261}) {
		t.Fatalf("%v", got)
	}
	if got := tok.EncodePlain("s abc"); slices.Contains(got, 261) {
		t.Errorf("%v", got)
	}
	got := tok.EncodeSegments([]Segment{{"s abc", false}, {"s abc", true}, {"s abc", false}}, false)
	if want := []int32{3, 5, 5, 261, 5, 5, 3, 0, 1, 2, 5, 5, 261}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRefused(t *testing.T) {
	ok := abc + `,"merges":[]`
	for want, data := range map[string]string{
		"git-lfs":                  "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4949453792\n",
		"4949453792 bytes":         "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4949453792\n",
		"not valid JSON":           `{"model":`,
		"not an object":            `[]`,
		"no model":                 `{}`,
		`model type "Unigram"`:     `{"model":{"type":"Unigram","vocab":[["a",0]]}}`,
		`model type "WordPiece"`:   `{"model":{"type":"WordPiece","vocab":{"a":0}}}`,
		"no merges":                small(abc, ""),
		"no vocab":                 small(`"merges":[]`, ""),
		"not a list":               small(abc+`,"merges":{}`, ""),
		"not two parts":            small(abc+`,"merges":["a b c"]`, ""),
		"not two strings":          small(abc+`,"merges":[["a"]]`, ""),
		"neither a string":         small(abc+`,"merges":[7]`, ""),
		"not in the vocabulary":    small(abc+`,"merges":["a x"]`, ""),
		"unk_token":                small(ok+`,"unk_token":"<unk>"`, ""),
		"dropout":                  small(ok+`,"dropout":0.1`, ""),
		"continuing_subword":       small(ok+`,"continuing_subword_prefix":"##"`, ""),
		"end_of_word":              small(ok+`,"end_of_word_suffix":"</w>"`, ""),
		"comes twice":              small(`"vocab":{"a":0,"b":0},"merges":[]`, ""),
		"key \"vocab\" comes":      small(`"vocab":{"a":0},"vocab":{"b":0},"merges":[]`, ""),
		"is not a number":          small(`"vocab":{"a":-1},"merges":[]`, ""),
		"from 0 to":                small(`"vocab":{"a":99999999},"merges":[]`, ""),
		"empty or broken":          small(`"vocab":{"":1},"merges":[]`, ""),
		"vocab is empty":           small(`"vocab":{},"merges":[]`, ""),
		`normalizer "Lowercase"`:   small(ok, `"normalizer":{"type":"Lowercase"}`),
		`pre_tokenizer "Bert`:      small(ok, `"pre_tokenizer":{"type":"BertPreTokenizer"}`),
		"after ByteLevel":          small(ok, `"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`),
		"cannot run the pattern":   small(ok, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`),
		`behavior "Contiguous"`:    small(ok, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Contiguous"}`),
		"contradicts":              small(ok, `"pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":false,"prepend_scheme":"always"}`),
		`prepend_scheme "last"`:    small(ok, `"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`),
		`post_processor "Roberta`:  small(ok, `"post_processor":{"type":"RobertaProcessing"}`),
		"no place for the text":    small(ok, `"post_processor":{"type":"TemplateProcessing","single":[]}`),
		"among its special_tokens": small(ok, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{}}`),
		"has no token":             small(ok, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[77]}}}`),
		`decoder "WordPiece"`:      small(ok, `"decoder":{"type":"WordPiece"}`),
		"only a plain string":      small(ok, `"decoder":{"type":"Replace","pattern":{"Regex":"a"},"content":"b"}`),
		"stop 1 after Fuse":        small(ok, `"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]}`),
		"but 0 in the vocabulary":  small(ok, `"added_tokens":[{"id":400,"content":"a"}]`),
		"belongs to":               small(ok, `"added_tokens":[{"id":0,"content":"z"}]`),
		"out of range":             small(ok, `"added_tokens":[{"id":-5,"content":"z"}]`),
		"given twice":              small(ok, `"added_tokens":[{"id":9,"content":"z"},{"id":10,"content":"z"}]`),
		"deeper than":              small(ok, `"normalizer":`+strings.Repeat(`{"type":"Sequence","normalizers":[`, 20)+`{"type":"NFC"}`+strings.Repeat(`]}`, 20)),
	} {
		_, err := Parse("some/tokenizer.json", []byte(data))
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, format.ErrInput) || !strings.HasPrefix(err.Error(), "some/tokenizer.json: ") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestLoadNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := Load(path); err == nil || !errors.Is(err, format.ErrInput) {
		t.Errorf("missing: %v", err)
	}
	os.WriteFile(filepath.Join(dir, "tokenizer.model"), []byte("x"), 0o644)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "tokenizer.model alone is not enough") || !strings.Contains(format.HintOf(err), "tokenizer.json") {
		t.Errorf("only tokenizer.model: %v", err)
	}
}

// Cutting a text without a pre-tokenizer at its joints must not change its ids.
func TestJointsAreExact(t *testing.T) {
	tok := load(t, "testdata/llama2/tokenizer.json")
	whole := load(t, "testdata/llama2/tokenizer.json")
	whole.joints = nil
	r := rand.New(rand.NewPCG(31, 32))
	for range 3000 {
		text := randomText(r, 60)
		if got, want := tok.Encode(text, false), whole.Encode(text, false); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	}
}

// The two ways to merge give the same ids.
func TestShortAndLongWords(t *testing.T) {
	for _, style := range []string{"llama2", "smollm2"} {
		tok := load(t, "testdata/"+style+"/tokenizer.json")
		r := rand.New(rand.NewPCG(41, 42))
		for range 500 {
			e := &scratch{}
			for range 1 + r.IntN(200) {
				e.ids = append(e.ids, int32(r.IntN(tok.Size())))
				if r.IntN(2) == 0 {
					e.ids = append(e.ids, tok.Encode("the tower", false)...)
				}
			}
			long := tok.mergeLong(e, nil)
			short := tok.mergeShort(e, nil)
			if !slices.Equal(long, short) {
				t.Fatalf("%s: %v and %v", style, long, short)
			}
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	tok := load(t, "testdata/qwen2/tokenizer.json")
	goldens := readGolden(t, "testdata/qwen2/golden.jsonl")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for _, g := range goldens {
					if got := tok.Encode(g.Text, false); !slices.Equal(got, g.IDs) {
						t.Errorf("%q: %v", g.Text, got)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// synthetic writes a tokenizer.json with n tokens and nearly as many merges: random words, built up pair by pair.
func synthetic(n int) []byte {
	r := rand.New(rand.NewPCG(51, 52))
	var vocab, rules strings.Builder
	tokens := make([]string, 0, n)
	seen := map[string]bool{}
	put := func(s string) {
		q, _ := json.Marshal(s)
		if len(tokens) > 0 {
			vocab.WriteByte(',')
		}
		fmt.Fprintf(&vocab, "%s:%d", q, len(tokens))
		tokens = append(tokens, s)
		seen[s] = true
	}
	for b := range 256 {
		put(string(byteRune[b]))
	}
	for len(tokens) < n {
		a, b := tokens[r.IntN(min(len(tokens), 4000))], tokens[r.IntN(min(len(tokens), 400))]
		if seen[a+b] || len(a+b) > 16 {
			continue
		}
		q, _ := json.Marshal([]string{a, b})
		if rules.Len() > 0 {
			rules.WriteByte(',')
		}
		rules.Write(q)
		put(a + b)
	}
	return []byte(`{"model":{"type":"BPE","vocab":{` + vocab.String() + `},"merges":[` + rules.String() + `]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}}`)
}

// A vocabulary of 49,152 tokens and as many merges must stay small: the runtime lives inside tight budgets.
func TestMemory(t *testing.T) {
	data := synthetic(49_152)
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	tok, err := Parse("synthetic", data)
	if err != nil {
		t.Fatal(err)
	}
	loaded := live()
	text := strings.Repeat(string(data[1000:200_000]), 3)
	n := len(tok.Encode(text, false))
	used := live()
	t.Logf("after load %d KiB, after %d tokens %d KiB", int64(loaded-before)/1024, n, int64(used-before)/1024)
	if grown := int64(loaded) - int64(before); grown > 4<<20 {
		t.Errorf("%d bytes live after load", grown)
	}
	if grown := int64(used) - int64(before); grown > 6<<20 {
		t.Errorf("%d bytes live after use", grown)
	}
	runtime.KeepAlive(tok)
	runtime.KeepAlive(data)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small(abc+`,"merges":["a b"]`, `"added_tokens":[{"id":9,"content":"<x>","special":true,"lstrip":true}],"normalizer":{"type":"NFC"}`)))
	f.Add([]byte(small(abc+`,"merges":[["a","b"]],"byte_fallback":true,"unk_token":"a"`, `"pre_tokenizer":{"type":"Metaspace","replacement":"_"},"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`)))
	f.Add([]byte(small(abc+`,"merges":[]`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a+"},"behavior":"Removed"},"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],"special_tokens":{}}`)))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		ids := tok.Encode(" abc \xff é_<x> a", true)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("id %d of %d", id, tok.Size())
			}
		}
		tok.Decode(append(ids, -1, 0, 1, 2), true)
	})
}

func FuzzEncodeDecode(f *testing.F) {
	var toks []*Tokenizer
	for _, s := range []string{"llama2", "llama3", "qwen2", "smollm2", "metaspace-first-split", "added-bytes"} {
		toks = append(toks, load(f, "testdata/"+s+"/tokenizer.json"))
	}
	f.Add("hello <s> wor\xffld 😀 'LL  \n 123", []byte{1, 2, 3})
	f.Add("\u0301<|end|>\u200d", []byte{255, 0, 77, 31})
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		for i, tok := range toks {
			ids := tok.Encode(text, true)
			plain := tok.EncodePlain(text)
			for _, id := range slices.Concat(ids, plain) {
				if _, ok := tok.Token(id); !ok {
					t.Fatalf("id %d has no token", id)
				}
			}
			for _, id := range plain {
				if s, _ := tok.Token(id); tok.IsSpecial(id) && s != "<unk>" {
					t.Fatalf("control token %q from plain text %q", s, text)
				}
			}
			if i == 1 || i == 3 { // byte level without a normalizer loses nothing
				if got, want := tok.Decode(plain, false), validUTF8(text); got != want {
					t.Fatalf("%q came back as %q", want, got)
				}
			}
			for j := 0; j+1 < len(raw); j += 2 {
				ids = append(ids, int32(raw[j])<<8|int32(raw[j+1]))
			}
			checkStream(t, tok, ids, true)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile("../../pipelines/tiny/calibration.txt")
	if err != nil {
		b.Fatal(err)
	}
	big, err := Parse("synthetic", synthetic(49_152))
	if err != nil {
		b.Fatal(err)
	}
	for _, style := range []string{"llama2", "llama3", "qwen2", "smollm2", "synthetic-49k"} {
		b.Run(style, func(b *testing.B) {
			tok := big
			if style != "synthetic-49k" {
				tok = load(b, "testdata/"+style+"/tokenizer.json")
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(string(text), false)
			}
		})
	}
}
