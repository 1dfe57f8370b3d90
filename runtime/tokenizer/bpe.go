package tokenizer

import (
	"hash/maphash"
	"slices"
	"unicode/utf8"
)

const (
	cacheSlots = 1 << 13
	cacheWord  = 24 // bytes; longer words are not kept
	cacheIDs   = 8
	shortWord  = 48 // symbols; longer words merge through a heap
)

// cached is one word and its ids; without pointers, so that the collector never looks inside.
type cached struct {
	size, count uint8 // bytes of word, ids; size 0 = free
	word        [cacheWord]byte
	ids         [cacheIDs]int32
}

// scratch is the working memory of one encoding.
type scratch struct {
	cache   []cached // nil in a scratch that is not kept
	symbols []symbol
	heap    []candidate
	mapped  []byte // a word in the byte-level alphabet
	ids     []int32
	ranks   []int32
}

// symbol is a token on its way; a doubly linked list, -1 at both ends. id is -1 when it was merged into the one before.
type symbol struct{ id, prev, next int32 }

// candidate is a merge that was possible when it was found.
type candidate struct{ rank, pos, result int32 }

func (c candidate) less(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// word appends the ids of one word. plain keeps control tokens from being taken whole from the vocabulary.
func (t *Tokenizer) word(e *scratch, w string, plain bool, out []int32) []int32 {
	if t.ignoreMerges {
		if id := t.wholeWord(e, w); id >= 0 && !(plain && t.IsSpecial(id)) {
			return append(out, id)
		}
	}
	var slot *cached
	if e.cache != nil && len(w) <= cacheWord {
		slot = &e.cache[maphash.String(t.vocab.seed, w)%cacheSlots]
		if int(slot.size) == len(w) && string(slot.word[:slot.size]) == w {
			return append(out, slot.ids[:slot.count]...)
		}
	}
	from := len(out)
	out = t.mergeWord(e, w, out)
	if n := len(out) - from; slot != nil && n <= cacheIDs {
		slot.size, slot.count = uint8(len(w)), uint8(n)
		copy(slot.word[:], w)
		copy(slot.ids[:], out[from:])
	}
	return out
}

func (t *Tokenizer) wholeWord(e *scratch, w string) int32 {
	if !t.byteLevel {
		return t.vocab.findString(w)
	}
	e.mapped = slices.Grow(e.mapped[:0], 2*len(w))
	for i := 0; i < len(w); i++ {
		e.mapped = utf8.AppendRune(e.mapped, byteRune[w[i]])
	}
	return t.vocab.find(e.mapped)
}

// mergeWord splits w into its smallest symbols and applies the merges, lowest rank first, leftmost first among equals.
func (t *Tokenizer) mergeWord(e *scratch, w string, out []int32) []int32 {
	e.ids = slices.Grow(e.ids[:0], len(w))
	if t.byteLevel {
		pendingUnk := false
		for i := 0; i < len(w); i++ {
			pendingUnk = t.addSymbol(e, t.byteID[w[i]], "", pendingUnk)
		}
		t.flushUnk(e, pendingUnk)
	} else {
		pendingUnk := false
		for i := 0; i < len(w); {
			_, n := utf8.DecodeRuneInString(w[i:])
			c := w[i : i+n]
			pendingUnk = t.addSymbol(e, t.vocab.char(c), c, pendingUnk)
			i += n
		}
		t.flushUnk(e, pendingUnk)
	}
	if len(e.ids) <= shortWord {
		return t.mergeShort(e, out)
	}
	return t.mergeLong(e, out)
}

// addSymbol adds a character: its token, else its bytes, else the unknown token, which waits so that a run of them may become one.
// Byte tokens do not end that wait: the reference does it so.
func (t *Tokenizer) addSymbol(e *scratch, id int32, char string, pendingUnk bool) bool {
	if id >= 0 {
		t.flushUnk(e, pendingUnk)
		e.ids = append(e.ids, id)
		return false
	}
	if t.byteFallback && len(char) > 0 {
		all := true
		for _, b := range []byte(char) {
			all = all && t.fallback[b] >= 0
		}
		if all {
			for _, b := range []byte(char) {
				e.ids = append(e.ids, t.fallback[b])
			}
			return pendingUnk
		}
	}
	if t.unk >= 0 {
		if pendingUnk && !t.fuseUnk {
			e.ids = append(e.ids, t.unk)
		}
		return true
	}
	return pendingUnk
}

func (t *Tokenizer) flushUnk(e *scratch, pending bool) {
	if pending {
		e.ids = append(e.ids, t.unk)
	}
}

// mergeShort looks for the best pair again after every merge: no heap, all in cache.
func (t *Tokenizer) mergeShort(e *scratch, out []int32) []int32 {
	ids := e.ids
	ranks := e.ranks[:0]
	for i := 0; i+1 < len(ids); i++ {
		ranks = append(ranks, t.merges.find(ids[i], ids[i+1]))
	}
	e.ranks = ranks
	for {
		best := -1
		for i, r := range ranks {
			if r >= 0 && (best < 0 || r < ranks[best]) {
				best = i
			}
		}
		if best < 0 {
			return append(out, ids...)
		}
		ids[best] = t.merges.result[ranks[best]]
		ids = append(ids[:best+1], ids[best+2:]...)
		ranks = append(ranks[:best], ranks[best+1:]...)
		if best < len(ranks) {
			ranks[best] = t.merges.find(ids[best], ids[best+1])
		}
		if best > 0 {
			ranks[best-1] = t.merges.find(ids[best-1], ids[best])
		}
	}
}

// mergeLong does the same with a linked list and a heap: n log n for words without end.
func (t *Tokenizer) mergeLong(e *scratch, out []int32) []int32 {
	n := len(e.ids)
	// Grown once to what is needed: growing step by step would leave as much again behind.
	s := slices.Grow(e.symbols[:0], n)
	for i, id := range e.ids {
		s = append(s, symbol{id, int32(i - 1), int32(i + 1)})
	}
	s[n-1].next = -1
	h := slices.Grow(e.heap[:0], n)
	push := func(pos int32) {
		if pos < 0 || s[pos].next < 0 {
			return
		}
		if r := t.merges.find(s[pos].id, s[s[pos].next].id); r >= 0 {
			h = append(h, candidate{r, pos, t.merges.result[r]})
			siftUp(h, len(h)-1)
		}
	}
	for i := range s {
		push(int32(i))
	}
	for len(h) > 0 {
		c := h[0]
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h)
		a := &s[c.pos]
		if a.id < 0 || a.next < 0 {
			continue
		}
		b := &s[a.next]
		if r := t.merges.find(a.id, b.id); r != c.rank {
			continue // another merge came first
		}
		a.id, b.id = c.result, -1
		if a.next = b.next; a.next >= 0 {
			s[a.next].prev = c.pos
		}
		push(a.prev)
		push(c.pos)
	}
	for i := range s {
		if s[i].id >= 0 {
			out = append(out, s[i].id)
		}
	}
	e.symbols, e.heap = s, h
	return out
}

func siftUp(h []candidate, i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].less(h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func siftDown(h []candidate) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].less(h[c]) {
			c++
		}
		if !h[c].less(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// trim lets go of what an unusually long word left behind.
func (e *scratch) trim() {
	const keep = 1 << 12
	if cap(e.symbols) > keep {
		e.symbols = nil
	}
	if cap(e.heap) > keep {
		e.heap = nil
	}
	if cap(e.ids) > keep {
		e.ids = nil
	}
	if cap(e.mapped) > keep {
		e.mapped = nil
	}
}
