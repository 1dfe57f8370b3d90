package self

import (
	"math/rand/v2"
	"unicode"
	"unicode/utf8"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/runtime/tokenizer"
)

// alone is how many documents there are to one that begins with the beginning token and no word.
const alone = 8

// starts draws how documents begin.
type starts struct {
	bos   int32   // -1: none
	first bool    // the model expects the beginning token before every text
	words []int32 // tokens that begin a word
}

func newStarts(c *checkpoint.Config, tok *tokenizer.Tokenizer) starts {
	s := starts{bos: -1, first: tok.AddsBOS()}
	if c.BOS >= 0 && c.BOS < c.Vocab {
		s.bos = int32(c.BOS)
	}
	var any []int32 // for a vocabulary that has no words with a space before them
	for id := int32(0); int(id) < min(tok.Size(), c.Vocab); id++ {
		b := tok.Bytes(id)
		if len(b) == 0 || tok.IsSpecial(id) || !utf8.Valid(b) {
			continue
		}
		any = append(any, id)
		if r, _ := utf8.DecodeRune(b[1:]); b[0] == ' ' && unicode.IsLetter(r) {
			s.words = append(s.words, id)
		}
	}
	if len(s.words) == 0 {
		s.words = any
	}
	return s
}

// draw appends a document's first tokens to dst, at least one.
func (s *starts) draw(rng *rand.Rand, dst []int32) []int32 {
	plain := s.bos >= 0 && rng.IntN(alone) == 0
	if s.bos >= 0 && (plain || s.first) {
		dst = append(dst, s.bos)
	}
	if !plain && len(s.words) > 0 {
		dst = append(dst, s.words[rng.IntN(len(s.words))])
	}
	if len(dst) == 0 {
		dst = append(dst, 0)
	}
	return dst
}
