package tokenizer

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
)

// component is any normalizer, pre-tokenizer, post-processor or decoder of a tokenizer.json: the union of their fields.
type component struct {
	Type string `json:"type"`

	Normalizers   []component `json:"normalizers"`
	Pretokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	Prepend string `json:"prepend"`
	Pattern struct {
		String *string
		Regex  *string
	} `json:"pattern"`
	Content          *string `json:"content"`
	Behavior         string  `json:"behavior"`
	Invert           bool    `json:"invert"`
	AddPrefixSpace   *bool   `json:"add_prefix_space"`
	UseRegex         *bool   `json:"use_regex"`
	IndividualDigits bool    `json:"individual_digits"`
	Replacement      string  `json:"replacement"`
	PrependScheme    *string `json:"prepend_scheme"`
	Split            *bool   `json:"split"`
	Start            int     `json:"start"`
	Stop             int     `json:"stop"`

	Single        []templateItem             `json:"single"`
	SpecialTokens map[string]templateSpecial `json:"special_tokens"`
}

// templateItem is one place of a TemplateProcessing: a special token or the text's own ids.
type templateItem struct {
	SpecialToken *struct {
		ID string `json:"id"`
	}
	Sequence *struct {
		ID string `json:"id"`
	}
}

type templateSpecial struct {
	IDs []int32 `json:"ids"`
}

// refuse says what is not supported or wrong; Parse puts the file's name before it.
func refuse(f string, a ...any) error { return fmt.Errorf(f, a...) }

func parseComponent(what string, raw []byte) (*component, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	c := new(component)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, refuse("%s: %v", what, err)
	}
	return c, nil
}

func (c *component) text(what string) (string, error) {
	if c.Content == nil {
		return "", refuse("%s: no content", what)
	}
	return *c.Content, nil
}

// regex compiles with options 0: under RE2 rules \s would be ASCII only, unlike the reference engine's.
func (c *component) regex(what string) (*regexp2.Regexp, error) {
	if c.Pattern.Regex == nil || *c.Pattern.Regex == "" {
		return nil, refuse("%s: no pattern", what)
	}
	if len(*c.Pattern.Regex) > maxPattern {
		return nil, refuse("%s: the pattern is longer than %d bytes", what, maxPattern)
	}
	re, err := regexp2.Compile(*c.Pattern.Regex, 0)
	if err != nil {
		return nil, refuse("%s: cannot run the pattern: %v", what, err)
	}
	re.MatchTimeout = 5 * time.Second // a pattern that backtracks without end leaves the rest of the text as one part
	return re, nil
}

// metaspace returns the mark and the prepend scheme, with the defaults of old files.
func (c *component) metaspace() (mark, scheme string, err error) {
	if c.Replacement == "" {
		return "", "", refuse("Metaspace: no replacement")
	}
	scheme = "always"
	if c.PrependScheme != nil {
		scheme = *c.PrependScheme
		if c.AddPrefixSpace != nil && !*c.AddPrefixSpace && scheme != "never" {
			return "", "", refuse("Metaspace: add_prefix_space false contradicts prepend_scheme %q", scheme)
		}
	} else if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		scheme = "never"
	}
	switch scheme {
	case "always", "first", "never":
		return c.Replacement, scheme, nil
	}
	return "", "", refuse("Metaspace: prepend_scheme %q is not supported", scheme)
}
