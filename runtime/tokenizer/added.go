package tokenizer

import (
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is cut out of the text before the model sees it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`

	shown string // how it reads in a decoded text: normalized, where it is searched normalized
}

// matcher finds added tokens: leftmost, then longest.
type matcher struct {
	patterns []string // sorted
	tokens   []*addedToken
	first    [256]bool
}

func newMatcher(patterns []string, tokens []*addedToken) *matcher {
	m := &matcher{}
	order := make([]int, 0, len(patterns))
	for i, p := range patterns {
		if p != "" {
			order = append(order, i)
			m.first[p[0]] = true
		}
	}
	sort.SliceStable(order, func(a, b int) bool { return patterns[order[a]] < patterns[order[b]] })
	for _, i := range order {
		m.patterns = append(m.patterns, patterns[i])
		m.tokens = append(m.tokens, tokens[i])
	}
	return m
}

// at returns the index of the longest pattern that s starts with, or -1.
func (m *matcher) at(s string) int {
	best, lo, hi := -1, 0, len(m.patterns)
	for d := 0; lo < hi; d++ {
		if len(m.patterns[lo]) == d { // the shortest of the range sorts first
			best = lo
			for lo < hi && len(m.patterns[lo]) == d {
				lo++
			}
		}
		if d == len(s) {
			break
		}
		c := s[d]
		r := m.patterns[lo:hi]
		from := sort.Search(len(r), func(i int) bool { return r[i][d] >= c })
		to := from + sort.Search(len(r)-from, func(i int) bool { return r[from+i][d] > c })
		lo, hi = lo+from, lo+to
	}
	return best
}

// ranges are parts of a text, ascending, in which control tokens are not recognised.
type ranges [][2]int

func (r ranges) overlap(lo, hi int) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i][1] > lo })
	return i < len(r) && r[i][0] < hi
}

// cut calls text for the parts of s between added tokens, and token for the tokens. Control tokens that touch a part of plain stay text.
func (m *matcher) cut(s string, plain ranges, text func(lo, hi int), token func(*addedToken)) {
	done := 0 // s[:done] is handed on
	for i := 0; len(m.patterns) > 0 && i < len(s); {
		if !m.first[s[i]] {
			i++
			continue
		}
		k := m.at(s[i:])
		if k < 0 {
			i++
			continue
		}
		t, lo, hi := m.tokens[k], i, i+len(m.patterns[k])
		i = hi
		if t.Special && plain.overlap(lo, hi) {
			continue
		}
		if t.SingleWord && (wordBefore(s[:lo]) || wordAfter(s[hi:])) {
			continue
		}
		if t.LStrip {
			lo = max(len(strings.TrimRightFunc(s[:lo], unicode.IsSpace)), done)
		}
		if t.RStrip {
			hi = len(s) - len(strings.TrimLeftFunc(s[hi:], unicode.IsSpace))
		}
		if done < lo {
			text(done, lo)
		}
		token(t)
		done = hi
	}
	if done < len(s) {
		text(done, len(s))
	}
}

// isWord is the \w of the reference: alphabetic, marks, decimal digits, connectors and the two joiners.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Nl, r) || unicode.Is(unicode.Pc, r) ||
		unicode.Is(unicode.Other_Alphabetic, r) || r == 0x200C || r == 0x200D
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// setAdded takes the added tokens of the file, after the vocabulary is there.
func (t *Tokenizer) setAdded(list []addedToken) error {
	if len(list) > maxAdded {
		return refuse("added_tokens: %d tokens are more than the limit of %d", len(list), maxAdded)
	}
	t.added = make(map[int32]*addedToken, len(list))
	t.addedID = make(map[string]int32, len(list))
	for i := range list {
		a := &list[i]
		if a.Content == "" || len(a.Content) > maxToken {
			return refuse("added_tokens: token %d has a content of %d bytes", a.ID, len(a.Content))
		}
		if a.ID < 0 || a.ID > maxID {
			return refuse("added_tokens: id %d of %q is out of range", a.ID, a.Content)
		}
		if id := t.vocab.findString(a.Content); id >= 0 && id != a.ID {
			return refuse("added_tokens: %q has id %d, but %d in the vocabulary", a.Content, a.ID, id)
		} else if id < 0 && int(a.ID) < len(t.vocab.size) && t.vocab.size[a.ID] != 0 {
			return refuse("added_tokens: id %d of %q belongs to %q in the vocabulary", a.ID, a.Content, t.vocab.bytes(a.ID))
		}
		a.shown = a.Content
		if old := t.added[a.ID]; old != nil {
			if *old == *a {
				continue
			}
			return refuse("added_tokens: id %d is given twice", a.ID)
		}
		if _, ok := t.addedID[a.Content]; ok {
			return refuse("added_tokens: %q is given twice", a.Content)
		}
		t.added[a.ID] = a
		t.addedID[a.Content] = a.ID
		t.size = max(t.size, int(a.ID)+1)
		if a.Special {
			t.control = append(t.control, a.Content)
		}
	}
	slices.Sort(t.control)
	return nil
}

// setMatchers prepares the two searches; the second one sees normalized text and looks for normalized contents.
func (t *Tokenizer) setMatchers() {
	var raw, normal []string
	var rawTokens, normalTokens []*addedToken
	ids := make([]int32, 0, len(t.added))
	for id := range t.added {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		a := t.added[id]
		if a.Normalized {
			a.shown = t.normalize(a.Content)
			normal, normalTokens = append(normal, a.shown), append(normalTokens, a)
			t.normalControl = t.normalControl || a.Special
		} else {
			raw, rawTokens = append(raw, a.Content), append(rawTokens, a)
		}
	}
	t.raw, t.normal = newMatcher(raw, rawTokens), newMatcher(normal, normalTokens)
}
