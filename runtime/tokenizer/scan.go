package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// Hand-written scanners for the three patterns that the supported families use. They split exactly as the patterns do (scan_test.go holds them
// against a regular-expression engine), some fifty times faster.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner returns the length of the match at the start of s, which is not empty. These patterns match everywhere, so a text falls into matches.
type scanner func(s string) int

func knownScanner(pattern string) scanner {
	switch pattern {
	case patternGPT2:
		return scanGPT2
	case patternLlama3:
		return func(s string) int { return scanLlama3(s, 3) }
	case patternQwen2:
		return func(s string) int { return scanLlama3(s, 1) }
	}
	return nil
}

type class uint8

const (
	other   class = iota
	letter        // \p{L}
	number        // \p{N}
	space         // \s but not \r or \n
	newline       // \r \n
	none          // the end of the text
)

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for i := range t {
		t[i] = runeClass(rune(i))
	}
	return t
}()

func runeClass(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r):
		return letter
	case unicode.IsSpace(r):
		return space
	case unicode.IsNumber(r):
		return number
	}
	return other
}

// classAt returns the class and the width of the character at s[i:].
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return none, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return runeClass(r), n
}

// run returns the end of the run of class c that starts at i.
func run(s string, i int, c class) int {
	for {
		k, n := classAt(s, i)
		if k != c {
			return i
		}
		i += n
	}
}

func scanGPT2(s string) int {
	if s[0] == '\'' {
		if n := contraction(s); n > 0 {
			return n
		}
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if c, n := classAt(s, i); c <= number {
		return run(s, i+n, c)
	}
	return scanSpace(s, false)
}

// scanLlama3 does the pattern of Llama-3 (up to three digits in a piece) and of Qwen2 (one).
func scanLlama3(s string, digits int) int {
	if s[0] == '\'' {
		if n := contractionFold(s); n > 0 {
			return n
		}
	}
	c, n := classAt(s, 0)
	if c == letter {
		return run(s, n, letter)
	}
	if c == other || c == space {
		if k, m := classAt(s, n); k == letter {
			return run(s, n+m, letter)
		}
	}
	if c == number {
		i := n
		for d := 1; d < digits; d++ {
			k, m := classAt(s, i)
			if k != number {
				break
			}
			i += m
		}
		return i
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if k, m := classAt(s, i); k == other {
		return run(s, run(s, i+m, other), newline)
	}
	return scanSpace(s, true)
}

// scanSpace does `\s+(?!\S)|\s+`, with `\s*[\r\n]+` before it where lines is set. s starts with white space.
func scanSpace(s string, lines bool) int {
	i, last, line := 0, 0, 0 // last: start of the last character; line: end of the last newline
	for {
		c, n := classAt(s, i)
		if c != space && c != newline {
			break
		}
		last = i
		i += n
		if c == newline {
			line = i
		}
	}
	if lines && line > 0 {
		return line
	}
	if i == len(s) || last == 0 {
		return i
	}
	return last // the last space goes with the next word
}

func contraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2] == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2] == 'l' {
			return 3
		}
	}
	return 0
}

// contractionFold is contraction without regard to case; U+017F (long s) folds to s.
func contractionFold(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(s) > 2 && s[1] == 0xC5 && s[2] == 0xBF {
		return 3
	}
	return 0
}
