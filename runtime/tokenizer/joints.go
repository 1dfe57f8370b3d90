package tokenizer

import "unicode/utf8"

// joints is the set of neighbouring characters inside tokens that merges make. Where two neighbours of a text are not in it, no merge can reach
// across, so the text may be cut there: vocabularies without a pre-tokenizer (Llama-2) would otherwise see a whole text as one word.
type joints struct {
	slots []uint64 // first<<32 | second, 0 free (a pair of NULs is kept apart)
	count int
	nul   bool
}

func (j *joints) add(a, b rune) {
	k := uint64(a)<<32 | uint64(b)
	if k == 0 {
		j.nul = true
		return
	}
	if j.count*2 >= len(j.slots) {
		old := j.slots
		j.slots = make([]uint64, max(256, 2*len(old)))
		j.count = 0
		for _, k := range old {
			if k != 0 {
				j.insert(k)
			}
		}
	}
	j.insert(k)
}

func (j *joints) insert(k uint64) {
	mask := uint64(len(j.slots) - 1)
	for i := pairHash(int32(k>>32), int32(k)) & mask; ; i = (i + 1) & mask {
		if j.slots[i] == k {
			return
		}
		if j.slots[i] == 0 {
			j.slots[i] = k
			j.count++
			return
		}
	}
}

func (j *joints) has(a, b rune) bool {
	k := uint64(a)<<32 | uint64(b)
	if k == 0 {
		return j.nul
	}
	if len(j.slots) == 0 {
		return false
	}
	mask := uint64(len(j.slots) - 1)
	for i := pairHash(a, b) & mask; j.slots[i] != 0; i = (i + 1) & mask {
		if j.slots[i] == k {
			return true
		}
	}
	return false
}

func (j *joints) addToken(token []byte) {
	prev := rune(-1)
	for len(token) > 0 {
		r, n := utf8.DecodeRune(token)
		if prev >= 0 {
			j.add(prev, r)
		}
		prev = r
		token = token[n:]
	}
}

// words encodes w in as many pieces as the joints allow. Both characters at a cut must have a token of their own: bytes and unknowns may merge
// in ways that their characters do not show. With ignoreMerges a whole word matters, so it is not cut.
func (t *Tokenizer) words(e *scratch, w string, plain bool, out []int32) []int32 {
	if t.joints == nil || t.ignoreMerges {
		return t.word(e, w, plain, out)
	}
	start, prev, prevAt := 0, rune(-1), 0
	for i, r := range w {
		if prev >= 0 && !t.joints.has(prev, r) &&
			t.vocab.char(w[prevAt:i]) >= 0 && t.vocab.char(w[i:i+utf8.RuneLen(r)]) >= 0 {
			out = t.word(e, w[start:i], plain, out)
			start = i
		}
		prev, prevAt = r, i
	}
	return t.word(e, w[start:], plain, out)
}
