package importer

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// deriveMerges makes the merge list of a SentencePiece vocabulary from its scores, in the order of Hugging Face's converter: every way to split a piece into
// two pieces is a merge; the highest score of the result comes first, then the longer left part, then the longer right part, then the order of ids.
// Only normal pieces take part: SentencePiece never builds a control token or a user-defined one out of parts.
func (v *vocabulary) deriveMerges(m meta) error {
	scores, ok, err := array[float32](m, keyScores, "float32")
	if err != nil {
		return err
	}
	if !ok {
		return m.missing(keyScores)
	}
	if len(scores) != len(v.tokens) {
		return format.Inputf("%s: key %q: %d scores for %d tokens", m.path, keyScores, len(scores), len(v.tokens))
	}
	if pre, ok, err := array[uint8](m, "tokenizer.ggml.precompiled_charsmap", "uint8"); err == nil && ok && len(pre) > 0 {
		return format.Inputf("%s: key %q: a normalisation table is not supported", m.path, "tokenizer.ggml.precompiled_charsmap")
	}
	normal := make(map[string]bool, len(v.tokens))
	for id, s := range v.tokens {
		if math.IsNaN(float64(scores[id])) {
			return format.Inputf("%s: key %q: the score of token %d is NaN", m.path, keyScores, id)
		}
		if t := v.types[id]; (t == tokenNormal || t == tokenUndefined) && s != "" {
			normal[s] = true
		}
	}
	type merge struct {
		score       float32
		left, right int // lengths in characters
		text        string
		cut         int // bytes of the left part
	}
	var all []merge
	for id, s := range v.tokens {
		if !normal[s] {
			continue
		}
		for cut, left := 0, 0; cut < len(s); left++ {
			if cut > 0 && normal[s[:cut]] && normal[s[cut:]] {
				all = append(all, merge{scores[id], left, utf8.RuneCountInString(s[cut:]), s, cut})
			}
			_, n := utf8.DecodeRuneInString(s[cut:])
			cut += n
		}
		if len(all) > maxMerges {
			return format.Inputf("%s: key %q: the pieces make more than %d merges", m.path, keyTokens, maxMerges)
		}
	}
	slices.SortStableFunc(all, func(x, y merge) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(y.left, x.left), cmp.Compare(y.right, x.right))
	})
	v.merges = make([][2]string, len(all))
	for i, x := range all {
		v.merges[i] = [2]string{x.text[:x.cut], x.text[x.cut:]}
	}
	return nil
}

// byteFallback says whether the vocabulary has tokens for single bytes.
func (v *vocabulary) byteFallback() bool { return slices.Contains(v.types, int32(tokenByte)) }
