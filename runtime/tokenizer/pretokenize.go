package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// pretokenizer splits s and hands the parts on; first says that s starts the whole text. Parts are never empty.
type pretokenizer func(s string, first bool, emit func(part string, first bool))

// compilePre returns the steps, and whether the last one maps bytes to the printable alphabet of byte-level vocabularies.
func compilePre(c *component, depth int) (steps []pretokenizer, byteLevel bool, err error) {
	if c == nil {
		return nil, false, nil
	}
	switch c.Type {
	case "Sequence":
		if depth >= maxDepth {
			return nil, false, refuse("pre_tokenizer: Sequence nested deeper than %d", maxDepth)
		}
		for i := range c.Pretokenizers {
			if byteLevel {
				return nil, false, refuse("pre_tokenizer %q after ByteLevel is not supported", c.Pretokenizers[i].Type)
			}
			s, b, err := compilePre(&c.Pretokenizers[i], depth+1)
			if err != nil {
				return nil, false, err
			}
			steps, byteLevel = append(steps, s...), b
		}
		return steps, byteLevel, nil
	case "ByteLevel":
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			steps = append(steps, func(s string, first bool, emit func(string, bool)) {
				if s[0] != ' ' {
					s = " " + s
				}
				emit(s, first)
			})
		}
		if c.UseRegex == nil || *c.UseRegex {
			steps = append(steps, scanStep(scanGPT2))
		}
		return steps, true, nil
	case "Split":
		s, err := compileSplit(c)
		return []pretokenizer{s}, false, err
	case "Digits":
		return []pretokenizer{digitStep(c.IndividualDigits)}, false, nil
	case "Metaspace":
		s, err := compileMetaspace(c)
		return []pretokenizer{s}, false, err
	}
	return nil, false, refuse("pre_tokenizer %q is not supported", c.Type)
}

func scanStep(scan scanner) pretokenizer {
	return func(s string, first bool, emit func(string, bool)) {
		for len(s) > 0 {
			n := scan(s)
			emit(s[:n], first)
			s, first = s[n:], false
		}
	}
}

func digitStep(individual bool) pretokenizer {
	return func(s string, first bool, emit func(string, bool)) {
		start, inside := 0, false // s[start:] is not handed on yet; inside: it is a run of digits
		cut := func(i int) {
			if i > start {
				emit(s[start:i], first && start == 0)
				start = i
			}
		}
		for i, r := range s {
			isNumber := r >= '0' && r <= '9' || r >= utf8.RuneSelf && unicode.IsNumber(r)
			if isNumber != inside || isNumber && individual {
				cut(i)
			}
			inside = isNumber
		}
		cut(len(s))
	}
}

func compileMetaspace(c *component) (pretokenizer, error) {
	mark, scheme, err := c.metaspace()
	if err != nil {
		return nil, err
	}
	split := c.Split == nil || *c.Split
	return func(s string, first bool, emit func(string, bool)) {
		s = strings.ReplaceAll(s, " ", mark)
		if !strings.HasPrefix(s, mark) && (scheme == "always" || scheme == "first" && first) {
			s = mark + s
		}
		if !split {
			emit(s, first)
			return
		}
		for { // every mark starts a part
			from := 0
			if strings.HasPrefix(s, mark) {
				from = len(mark)
			}
			n := strings.Index(s[from:], mark)
			if n < 0 {
				emit(s, first)
				return
			}
			emit(s[:from+n], first)
			s, first = s[from+n:], false
		}
	}, nil
}

// span is a part of a text that the pattern of a Split does or does not match.
type span struct {
	lo, hi int
	match  bool
}

func compileSplit(c *component) (pretokenizer, error) {
	var find func(s string, dst []span) []span
	if lit := c.Pattern.String; lit != nil {
		if *lit == "" {
			return nil, refuse("pre_tokenizer Split: the pattern is empty")
		}
		find = func(s string, dst []span) []span { return findLiteral(s, *lit, dst) }
	} else {
		re, err := c.regex("pre_tokenizer Split")
		if err != nil {
			return nil, err
		}
		if scan := knownScanner(*c.Pattern.Regex); scan != nil && c.Behavior == "Isolated" {
			return scanStep(scan), nil // every part is a match, so invert does not matter
		}
		find = func(s string, dst []span) []span { return findRegex(re, s, dst) }
	}
	var join func([]span) []span
	switch c.Behavior {
	case "Isolated":
		join = func(s []span) []span { return s }
	case "Removed":
		join = removeMatches
	case "MergedWithPrevious":
		join = mergePrevious
	case "MergedWithNext":
		join = mergeNext
	default:
		return nil, refuse("pre_tokenizer Split: behavior %q is not supported", c.Behavior)
	}
	return func(s string, first bool, emit func(string, bool)) {
		spans := find(s, nil)
		if c.Invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, p := range join(spans) {
			if p.hi > p.lo {
				emit(s[p.lo:p.hi], first && p.lo == 0)
			}
		}
	}, nil
}

func findLiteral(s, lit string, dst []span) []span {
	pos := 0
	for {
		i := strings.Index(s[pos:], lit)
		if i < 0 {
			break
		}
		if i > 0 {
			dst = append(dst, span{pos, pos + i, false})
		}
		dst = append(dst, span{pos + i, pos + i + len(lit), true})
		pos += i + len(lit)
	}
	if pos < len(s) {
		dst = append(dst, span{pos, len(s), false})
	}
	return dst
}

// findRegex works on runes, as the engine does, and translates to byte positions as it goes on.
func findRegex(re *regexp2.Regexp, s string, dst []span) []span {
	text := []rune(s)
	at, pos := 0, 0 // rune index and byte index of the same place
	advance := func(to int) int {
		for ; at < to; at++ {
			_, n := utf8.DecodeRuneInString(s[pos:])
			pos += n
		}
		return pos
	}
	prev := 0
	m, err := re.FindRunesMatch(text)
	for err == nil && m != nil {
		lo := advance(m.Index)
		hi := advance(m.Index + m.Length)
		if lo > prev {
			dst = append(dst, span{prev, lo, false})
		}
		dst = append(dst, span{lo, hi, true})
		prev = hi
		m, err = re.FindNextMatch(m)
	}
	if prev < len(s) { // also what is left when the pattern ran out of time
		dst = append(dst, span{prev, len(s), false})
	}
	return dst
}

func removeMatches(in []span) []span {
	out := in[:0]
	for _, p := range in {
		if !p.match {
			out = append(out, p)
		}
	}
	return out
}

// mergePrevious joins a match to the part before it, unless that part is a match too.
func mergePrevious(in []span) []span {
	out := in[:0]
	before := false
	for _, p := range in {
		if p.match && !before && len(out) > 0 {
			out[len(out)-1].hi = p.hi
		} else {
			out = append(out, p)
		}
		before = p.match
	}
	return out
}

// mergeNext joins a match to the part after it, unless that part is a match too.
func mergeNext(in []span) []span {
	end := len(in) // in[end:] is done
	after := false
	for i := len(in) - 1; i >= 0; i-- {
		p := in[i]
		if p.match && !after && end < len(in) {
			in[end].lo = p.lo
		} else {
			end--
			in[end] = p
		}
		after = p.match
	}
	return in[end:]
}

// pretokenize sends the words of s to emit.
func (t *Tokenizer) pretokenize(step int, s string, first bool, emit func(word string)) {
	if step == len(t.pre) {
		emit(s)
		return
	}
	t.pre[step](s, first, func(part string, first bool) { t.pretokenize(step+1, part, first, emit) })
}
