package tokenizer

import "neuroprefetcher/format"

const (
	// MaxFile bounds tokenizer.json. The largest in wide use, 256,000 tokens with pretty-printed merges, is about 34 MiB.
	MaxFile = 64 << 20
	// MaxText bounds one text, for callers that take text from outside: working memory is up to 48 bytes for each byte of a text without a single split.
	MaxText = 64 << 20
	// maxID bounds token ids, since tables are indexed by id.
	maxID = 1 << 21
	// maxToken is the longest token in bytes; the table stores lengths in 16 bits.
	maxToken = 1<<16 - 1
	// maxAdded bounds added tokens; real files have up to about a thousand.
	maxAdded = 1 << 16
	// maxDepth bounds how deep Sequence may be nested in Sequence.
	maxDepth = 8
	// maxPattern bounds a pre-tokenizer's regular expression in bytes.
	maxPattern = 1 << 12
)

// CheckText refuses a text that is longer than MaxText; name says where it came from.
func CheckText(name, text string) error {
	if len(text) > MaxText {
		return format.Inputf("%s: text of %d bytes is longer than the limit of %d", name, len(text), MaxText)
	}
	return nil
}
