package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tokenizer turns text into token ids and back.
type Tokenizer struct {
	vocab  *vocab
	merges *merges
	joints *joints // nil for byte-level vocabularies
	size   int     // highest id + 1

	added         map[int32]*addedToken
	addedID       map[string]int32
	raw, normal   *matcher // added tokens in the text as it is, and in normalized text
	normalControl bool     // some control token wants normalized text
	control       []string

	normalizers   []normalizer
	pre           []pretokenizer
	decoder       *decoder
	before, after []int32 // what the post-processor puts around a text

	byteLevel    bool
	byteFallback bool
	fuseUnk      bool
	ignoreMerges bool
	unk          int32      // -1 none
	fallback     [256]int32 // <0x00> to <0xFF>, -1 where missing
	byteID       [256]int32 // the token of one byte in byte-level vocabularies, -1 where missing

	mu      sync.Mutex
	scratch *scratch // guarded by mu
}

// Segment is a part of a prompt. A control token is recognised only where no part of it lies in a Plain segment.
type Segment struct {
	Text  string
	Plain bool
}

// Encode returns the ids of text. Control tokens in text are recognised. addSpecial puts around it what the post-processor says.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	return t.encode(text, nil, addSpecial)
}

// EncodePlain returns the ids of text that comes from outside: control tokens in it are read as what they look like, not as what they mean.
func (t *Tokenizer) EncodePlain(text string) []int32 {
	if text == "" {
		return nil
	}
	text = validUTF8(text)
	return t.encode(text, ranges{{0, len(text)}}, false)
}

// EncodeSegments encodes a prompt as one text, so that its ids do not depend on how it is cut; only control tokens in Plain segments stay text.
func (t *Tokenizer) EncodeSegments(segs []Segment, addSpecial bool) []int32 {
	var text strings.Builder
	var plain ranges
	for _, s := range segs {
		lo := text.Len()
		text.WriteString(validUTF8(s.Text))
		if s.Plain && text.Len() > lo {
			plain = append(plain, [2]int{lo, text.Len()})
		}
	}
	return t.encode(text.String(), plain, addSpecial)
}

// EncodeCompletion encodes a raw prompt with the special tokens that belong around it. When the text itself starts with those that go before it,
// they are not put there twice, and had says so.
func (t *Tokenizer) EncodeCompletion(text string) (ids []int32, had bool) {
	ids = t.encode(text, nil, false)
	had = len(t.before) > 0 && len(ids) >= len(t.before) && slices.Equal(ids[:len(t.before)], t.before)
	if !had {
		ids = append(slices.Clone(t.before), ids...)
	}
	return append(ids, t.after...), had
}

func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (t *Tokenizer) encode(text string, plain ranges, addSpecial bool) []int32 {
	text = validUTF8(text)
	e := &scratch{}
	if t.mu.TryLock() {
		if t.scratch == nil {
			t.scratch = &scratch{cache: make([]cached, cacheSlots)}
		}
		e = t.scratch
		defer func() {
			e.trim()
			t.mu.Unlock()
		}()
	}
	ids := make([]int32, 0, len(text)/4+len(t.before)+len(t.after)+4)
	if addSpecial {
		ids = append(ids, t.before...)
	}
	take := func(a *addedToken) { ids = append(ids, a.ID) }
	guarded := len(plain) > 0
	t.raw.cut(text, plain, func(lo, hi int) {
		piece := t.normalize(text[lo:hi])
		var inner ranges
		if t.normalControl && guarded {
			inner = t.normalRanges(text, lo, hi, plain, len(piece))
		}
		t.normal.cut(piece, inner, func(a, b int) {
			t.pretokenize(0, piece[a:b], lo == 0 && a == 0, func(w string) { ids = t.words(e, w, guarded, ids) })
		}, take)
	}, take)
	if addSpecial {
		ids = append(ids, t.after...)
	}
	return ids
}

// normalRanges translates the plain ranges inside text[lo:hi] to positions in the normalized piece, by normalizing up to each of their ends.
// A normalizer may join characters across an end; being off by those few bytes still leaves a control token inside the range touching it.
func (t *Tokenizer) normalRanges(text string, lo, hi int, plain ranges, size int) ranges {
	var out ranges
	at := func(p int) int {
		switch {
		case p <= lo:
			return 0
		case p >= hi:
			return size
		}
		return min(len(t.normalize(text[lo:p])), size)
	}
	for _, p := range plain {
		if p[1] > lo && p[0] < hi {
			if a, b := at(p[0]), at(p[1]); b > a {
				out = append(out, [2]int{a, b})
			}
		}
	}
	return out
}

// Size returns the highest id + 1; some ids below may have no token.
func (t *Tokenizer) Size() int { return t.size }

// Token returns a token as the vocabulary spells it.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a := t.added[id]; a != nil {
		return a.shown, true
	}
	if id < 0 || int(id) >= len(t.vocab.size) || t.vocab.size[id] == 0 {
		return "", false
	}
	return string(t.vocab.bytes(id)), true
}

// ID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.addedID[token]; ok {
		return id, true
	}
	id := t.vocab.findString(token)
	return id, id >= 0
}

// IsSpecial reports whether id is a control token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	a := t.added[id]
	return a != nil && a.Special
}

// AddsBOS reports whether the post-processor puts tokens before a text.
func (t *Tokenizer) AddsBOS() bool { return len(t.before) > 0 }

// ControlTokens returns the texts of all control tokens, sorted. The slice belongs to the Tokenizer.
func (t *Tokenizer) ControlTokens() []string { return t.control }
