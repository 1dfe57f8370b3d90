package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
)

// randomText draws from pools in which the patterns' corner cases are common: white space of all kinds, apostrophes, digits of several scripts.
func randomText(r *rand.Rand, n int) string {
	pools := []string{
		"abcXYZ", "0123456789", " ", "  ", "\n\r\t", "\u00a0\u3000\u0085\u2028\u2029\u200b\v\f\x1c\x1f\u180e\u1680", "'", "stmdrvlSTMDRVLe", ".,;:!?-_()[]{}<>|", "éüñßĄжЯ你好한ǅʰªº", "½²①٣৪Ⅷ〇", "😀👩\u200d\ufe0f\u0301\u093f",
		"\x00\x7f\ufffd\ufeff\U0010ffff\U000e0001",
	}
	var b strings.Builder
	for range r.IntN(n) {
		if r.IntN(12) == 0 { // any rune
			b.WriteRune(rune(r.IntN(0x30000)))
			continue
		}
		p := []rune(pools[r.IntN(len(pools))])
		b.WriteRune(p[r.IntN(len(p))])
	}
	return validUTF8(b.String())
}

func TestScannersMatchPatterns(t *testing.T) {
	for name, pattern := range map[string]string{"gpt2": patternGPT2, "llama3": patternLlama3, "qwen2": patternQwen2} {
		t.Run(name, func(t *testing.T) {
			re := regexp2.MustCompile(pattern, 0)
			scan := scanStep(knownScanner(pattern))
			r := rand.New(rand.NewPCG(11, uint64(len(pattern))))
			texts := []string{"a  b", "a   \n\n  b", "x \n", "12345678", "It'S we'LL", " ", "\n", "  \n  ", "'", "''s", "'re'", "a\u00a0 b", "\u3000\u3000x"}
			for range 20_000 {
				texts = append(texts, randomText(r, 24))
			}
			for _, text := range texts {
				var want, got []string
				for _, s := range findRegex(re, text, nil) {
					want = append(want, text[s.lo:s.hi])
				}
				scan(text, true, func(s string, _ bool) { got = append(got, s) })
				if !slices.Equal(got, want) {
					t.Fatalf("%q:\n got %q\nwant %q", text, got, want)
				}
			}
		})
	}
}

// Words by hand: the last space of a run belongs to the next word, digits go in threes or all together, and contractions fold
// case where the pattern says so.
func TestWordsByHand(t *testing.T) {
	for text, want := range map[string][2][]string{ // by Llama 3's pattern, by GPT-2's
		"a  b":           {{"a", " ", " b"}, {"a", " ", " b"}},
		"a   \n\n  b":    {{"a", "   \n\n", " ", " b"}, {"a", "   \n\n ", " b"}},
		"x \n":           {{"x", " \n"}, {"x", " \n"}},
		"12345678":       {{"123", "456", "78"}, {"12345678"}},
		"It'S we'LL":     {{"It", "'S", " we", "'LL"}, {"It", "'", "S", " we", "'", "LL"}},
		"it's we'll":     {{"it", "'s", " we", "'ll"}, {"it", "'s", " we", "'ll"}},
		"a\u00a0\u3000b": {{"a", "\u00a0", "\u3000b"}, {"a", "\u00a0", "\u3000", "b"}},
	} {
		for i, pattern := range []string{patternLlama3, patternGPT2} {
			var got []string
			scanStep(knownScanner(pattern))(text, true, func(s string, _ bool) { got = append(got, s) })
			if !slices.Equal(got, want[i]) {
				t.Errorf("%q by %.20s…: %q, want %q", text, pattern, got, want[i])
			}
		}
	}
}

// The reference engine folds U+017F to s; the engine above does not, so this is pinned by what the reference gives.
func TestLongSFolds(t *testing.T) {
	var got []string
	scanStep(knownScanner(patternLlama3))("it'ſx", true, func(s string, _ bool) { got = append(got, s) })
	if want := []string{"it", "'ſ", "x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every class of every rune agrees with the engine's idea of it.
func TestClassesMatchEngine(t *testing.T) {
	for pattern, want := range map[string]func(class) bool{
		`\p{L}`: func(c class) bool { return c == letter }, `\p{N}`: func(c class) bool { return c == number }, `\s`: func(c class) bool { return c == space || c == newline },
	} {
		re := regexp2.MustCompile(pattern, 0)
		for r := rune(0); r <= 0x10FFFF; r++ {
			if r >= 0xD800 && r <= 0xDFFF {
				continue
			}
			m, err := re.MatchRunes([]rune{r})
			if err != nil || m != want(runeClass(r)) {
				t.Fatalf("%s on %U: engine %v, class %d, %v", pattern, r, m, runeClass(r), err)
			}
		}
	}
}
