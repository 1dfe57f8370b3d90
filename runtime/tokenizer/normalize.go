package tokenizer

import (
	"strings"

	"github.com/dlclark/regexp2"
	"golang.org/x/text/unicode/norm"
)

// normalizer is one step; nil steps do not exist. A text that needs no change comes back as it was.
type normalizer func(string) string

func compileNormalizer(c *component, depth int) ([]normalizer, error) {
	if c == nil {
		return nil, nil
	}
	switch c.Type {
	case "Sequence":
		if depth >= maxDepth {
			return nil, refuse("normalizer: Sequence nested deeper than %d", maxDepth)
		}
		var all []normalizer
		for i := range c.Normalizers {
			n, err := compileNormalizer(&c.Normalizers[i], depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, n...)
		}
		return all, nil
	case "Prepend":
		prefix := c.Prepend
		return []normalizer{func(s string) string {
			if s == "" {
				return s
			}
			return prefix + s
		}}, nil
	case "Replace":
		content, err := c.text("normalizer Replace")
		if err != nil {
			return nil, err
		}
		if lit := c.Pattern.String; lit != nil && *lit != "" {
			return []normalizer{func(s string) string { return strings.ReplaceAll(s, *lit, content) }}, nil
		}
		re, err := c.regex("normalizer Replace")
		if err != nil {
			return nil, err
		}
		return []normalizer{func(s string) string {
			out, err := re.ReplaceFunc(s, func(regexp2.Match) string { return content }, -1, -1)
			if err != nil { // out of time on a hostile pattern
				return s
			}
			return out
		}}, nil
	case "NFC":
		return []normalizer{norm.NFC.String}, nil
	case "NFD":
		return []normalizer{norm.NFD.String}, nil
	case "NFKC":
		return []normalizer{norm.NFKC.String}, nil
	case "NFKD":
		return []normalizer{norm.NFKD.String}, nil
	}
	return nil, refuse("normalizer %q is not supported", c.Type)
}

func (t *Tokenizer) normalize(s string) string {
	for _, n := range t.normalizers {
		s = n(s)
	}
	return s
}
