package text

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"unicode/utf8"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/runtime/tokenizer"
)

// MaxTextBytes bounds the calibration text: it is held and tokenised whole.
const MaxTextBytes = 256 << 20

// Text is calibration text as tokens.
type Text struct {
	Files  []string
	Hash   string  // SHA-256 of the files' content, joined
	Tokens []int32 // all of it, no special tokens added

	tok  *tokenizer.Tokenizer
	ends []int // byte position where each file ends in the joined text
}

// Load joins the files in the order given and tokenises the whole, so that how a text is split into files changes
// nothing. Control tokens written in the text are recognised.
func Load(c *checkpoint.Checkpoint, files []string) (*Text, error) {
	joined, ends, err := read(files)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(filepath.Join(c.Dir, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	t := &Text{Files: files, Hash: hash(joined), tok: tok, ends: ends}
	t.Tokens = tok.Encode(string(joined), false)
	for _, id := range t.Tokens {
		if id < 0 || int(id) >= c.Config.Vocab {
			return nil, format.Inputf("%s: the tokenizer gives token %d, the model has %d", c.Dir, id, c.Config.Vocab)
		}
	}
	return t, nil
}

// Check refuses files that Load would refuse whatever the tokeniser makes of them.
func Check(files []string) error {
	joined, _, err := read(files)
	if err == nil && len(joined) == 0 {
		err = empty(files)
	}
	return err
}

func empty(files []string) error { return format.Inputf("%s: the calibration text is empty", files[0]) }

// Hash is the SHA-256 of the files' joined content.
func Hash(files []string) (string, error) {
	joined, _, err := read(files)
	if err != nil {
		return "", err
	}
	return hash(joined), nil
}

func hash(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func read(files []string) (joined []byte, ends []int, err error) {
	if len(files) == 0 {
		return nil, nil, format.Hint(format.Inputf("no calibration text"), "name text files with --text")
	}
	for _, name := range files {
		// Regular files only: the text is read by more than one stage, and a device would never end.
		f, size, err := format.OpenRegular(name)
		if err != nil {
			return nil, nil, err
		}
		f.Close()
		if int64(len(joined))+size > MaxTextBytes {
			return nil, nil, format.Inputf("%s: calibration text must be at most %s in all", name, format.IEC(MaxTextBytes))
		}
		b, err := format.ReadFile(name, MaxTextBytes)
		if err != nil {
			return nil, nil, err
		}
		joined = append(joined, b...)
		ends = append(ends, len(joined))
	}
	for i := 0; i < len(joined); {
		r, n := utf8.DecodeRune(joined[i:])
		if r == utf8.RuneError && n == 1 {
			return nil, nil, format.Inputf("%s: not UTF-8 at byte %d of the joined text", fileAt(files, ends, i), i)
		}
		i += n
	}
	return joined, ends, nil
}

// fileAt names the file that byte i of the joined text came from.
func fileAt(files []string, ends []int, i int) string {
	for j, end := range ends {
		if i < end {
			return files[j]
		}
	}
	return files[len(files)-1]
}

// Source names the file that token i came from.
func (t *Text) Source(i int) string {
	return fileAt(t.Files, t.ends, len(t.tok.Decode(t.Tokens[:i], false)))
}

// Cut returns the windows of the first tokens tokens of the text, and refuses a shorter text.
func (t *Text) Cut(tokens, window int) ([]calib.Window, error) {
	if tokens < 1 {
		return nil, empty(t.Files)
	}
	if len(t.Tokens) < tokens {
		return nil, format.Hint(format.Inputf("calibration text has %d tokens, %d are needed", len(t.Tokens), tokens),
			"name more --text files or lower --tokens")
	}
	return calib.Cut(tokens, window), nil
}
