package tokenizer

import (
	"encoding/json"
	"unicode/utf8"
)

// Walking over JSON that json.Valid has already accepted, without building maps: vocabularies are large and memory is short.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at b[i] == '"'.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that starts at b[i].
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// eachMember calls f for the members of the object b; key is still quoted. It reports false when b is not an object.
func eachMember(b []byte, f func(key, value []byte) error) (bool, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false, nil
	}
	for i = skipSpace(b, i+1); i < len(b) && b[i] == '"'; {
		end := skipString(b, i)
		key := b[i:end]
		i = skipSpace(b, end)
		i = skipSpace(b, min(i+1, len(b))) // the colon
		end = skipValue(b, i)
		if err := f(key, b[i:end]); err != nil {
			return true, err
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			break
		}
		i = skipSpace(b, i+1)
	}
	return true, nil
}

// eachElement calls f for the elements of the array b. It reports false when b is not an array.
func eachElement(b []byte, f func(value []byte) error) (bool, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return false, nil
	}
	for i = skipSpace(b, i+1); i < len(b) && b[i] != ']'; {
		end := skipValue(b, i)
		if err := f(b[i:end]); err != nil {
			return true, err
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			break
		}
		i = skipSpace(b, i+1)
	}
	return true, nil
}

// appendUnquoted appends the text of a quoted string to dst. Strings with escapes take the slow way through encoding/json.
func appendUnquoted(dst, quoted []byte) ([]byte, bool) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return dst, false
	}
	in := quoted[1 : len(quoted)-1]
	plain := true
	for _, c := range in {
		if c == '\\' {
			plain = false
			break
		}
	}
	if plain && utf8.Valid(in) {
		return append(dst, in...), true
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return dst, false
	}
	return append(dst, s...), true
}

// parseID reads a token id; JSON numbers with fractions or exponents are not ids.
func parseID(b []byte) (int32, bool) {
	if len(b) == 0 || len(b) > 8 {
		return 0, false
	}
	n := int32(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int32(c-'0')
	}
	return n, true
}
