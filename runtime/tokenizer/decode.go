package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteRune is the printable alphabet of byte-level vocabularies: byte → character. runeByte is its inverse, -1 elsewhere.
var byteRune, runeByte = func() (to [256]rune, from [324]int16) {
	for i := range from {
		from[i] = -1
	}
	spare := rune(256)
	for b := range to {
		if b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174 {
			to[b] = rune(b)
		} else {
			to[b] = spare
			spare++
		}
		from[to[b]] = int16(b)
	}
	return to, from
}()

// decoder is the file's chain of decoders: steps on each token, then bytes to text, then a strip at the start of the whole.
type decoder struct {
	spaced       bool // no decoder at all: tokens with spaces between them
	byteLevel    bool
	byteFallback bool
	steps        []func(token string, first bool) string
	strip        string
	stripCount   int
}

func compileDecoder(c *component) (*decoder, error) {
	d := &decoder{}
	if c == nil {
		d.spaced = true
		return d, nil
	}
	fused := false
	return d, d.add(c, &fused, 0)
}

func (d *decoder) add(c *component, fused *bool, depth int) error {
	if d.byteLevel && c.Type != "Fuse" && c.Type != "Sequence" {
		return refuse("decoder %q after ByteLevel is not supported", c.Type)
	}
	afterBytes := *fused || d.byteFallback
	switch c.Type {
	case "Sequence":
		if depth >= maxDepth {
			return refuse("decoder: Sequence nested deeper than %d", maxDepth)
		}
		for i := range c.Decoders {
			if err := d.add(&c.Decoders[i], fused, depth+1); err != nil {
				return err
			}
		}
	case "ByteLevel":
		if afterBytes || len(d.steps) > 0 {
			return refuse("decoder ByteLevel after another decoder is not supported")
		}
		d.byteLevel = true
	case "ByteFallback":
		if afterBytes {
			return refuse("decoder ByteFallback after ByteFallback or Fuse is not supported")
		}
		d.byteFallback = true
	case "Fuse":
		*fused = true
	case "Replace":
		content, err := c.text("decoder Replace")
		if err != nil {
			return err
		}
		if c.Pattern.String == nil || *c.Pattern.String == "" {
			return refuse("decoder Replace: only a plain string as pattern is supported")
		}
		if afterBytes {
			return refuse("decoder Replace after ByteFallback or Fuse is not supported")
		}
		old := *c.Pattern.String
		d.steps = append(d.steps, func(s string, _ bool) string { return strings.ReplaceAll(s, old, content) })
	case "Strip":
		content, err := c.text("decoder Strip")
		if err != nil {
			return err
		}
		if utf8.RuneCountInString(content) != 1 || c.Start < 0 || c.Stop < 0 {
			return refuse("decoder Strip: content %q, start %d, stop %d", content, c.Start, c.Stop)
		}
		switch {
		case !afterBytes:
			start, stop := c.Start, c.Stop
			d.steps = append(d.steps, func(s string, _ bool) string {
				for k := 0; k < start && strings.HasPrefix(s, content); k++ {
					s = s[len(content):]
				}
				for k := 0; k < stop && strings.HasSuffix(s, content); k++ {
					s = s[:len(s)-len(content)]
				}
				return s
			})
		case !*fused:
			return refuse("decoder Strip between ByteFallback and Fuse is not supported")
		case c.Stop > 0:
			return refuse("decoder Strip: stop %d after Fuse is not supported", c.Stop)
		case d.strip != "":
			return refuse("decoder: a second Strip after Fuse is not supported")
		default:
			d.strip, d.stripCount = content, c.Start
		}
	case "Metaspace":
		mark, scheme, err := c.metaspace()
		if err != nil {
			return err
		}
		if afterBytes {
			return refuse("decoder Metaspace after ByteFallback or Fuse is not supported")
		}
		d.steps = append(d.steps, func(s string, first bool) string {
			if first && scheme != "never" { // the reference drops every mark of the first token
				return strings.ReplaceAll(s, mark, "")
			}
			return strings.ReplaceAll(s, mark, " ")
		})
	default:
		return refuse("decoder %q is not supported", c.Type)
	}
	return nil
}

// Stream turns ids into text one by one. It holds back at most the up to three bytes of an unfinished character, until that is finished or cannot
// be any more. What Push and Flush return, one after the other, is what Text returns for the same ids.
//
// Text that is not UTF-8 becomes U+FFFD: one for each maximal broken part in byte-level vocabularies, one for each byte with byte fallback.
type Stream struct {
	t       *Tokenizer
	skip    bool
	runs    bool   // judge a run of byte tokens as a whole, for Decode
	started bool   // a token was there
	strip   int    // characters that may still be stripped at the start
	tail    []byte // bytes of an unfinished character
	out     []byte
}

// NewStream starts a text. skipSpecial leaves control tokens out.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skip: skipSpecial, strip: t.decoder.stripCount}
}

// Push returns the text that id makes certain. Ids without a token have no text.
func (s *Stream) Push(id int32) string {
	s.out = s.out[:0]
	s.push(id)
	return s.take()
}

// Flush ends the text: what is held back comes out as U+FFFD. The stream may be used for another text afterwards.
func (s *Stream) Flush() string {
	s.out = s.out[:0]
	s.settle(true)
	text := s.take()
	s.started, s.strip = false, s.t.decoder.stripCount
	return text
}

func (s *Stream) push(id int32) {
	token, ok := s.t.Token(id)
	if !ok || s.skip && s.t.IsSpecial(id) {
		return
	}
	first := !s.started
	s.started = true
	d := s.t.decoder
	switch {
	case d.spaced:
		if !first {
			s.out = append(s.out, ' ')
		}
		s.out = append(s.out, token...)
		return
	case d.byteLevel:
		s.tail = appendTokenBytes(s.tail, token)
		s.settle(false)
		return
	}
	for _, f := range d.steps {
		token = f(token, first)
	}
	if d.byteFallback {
		if b, ok := byteToken(token); ok {
			s.tail = append(s.tail, b)
			if !s.runs {
				s.settle(false)
			}
			return
		}
		s.settle(true)
	}
	s.out = append(s.out, token...)
}

// take returns what came out, less what is stripped at the start.
func (s *Stream) take() string {
	out := s.out
	if s.strip > 0 {
		strip := s.t.decoder.strip
		for s.strip > 0 && len(out) >= len(strip) && string(out[:len(strip)]) == strip {
			out = out[len(strip):]
			s.strip--
		}
		if len(out) > 0 {
			s.strip = 0
		}
	}
	return string(out)
}

// settle moves from tail to out all that is certain; everything, when the text or the run of bytes ends.
func (s *Stream) settle(end bool) {
	b := s.tail
	if s.runs && !utf8.Valid(b) {
		for range b {
			s.out = utf8.AppendRune(s.out, utf8.RuneError)
		}
		b = nil
	}
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			s.out = append(s.out, b[:n]...)
			b = b[n:]
			continue
		}
		if !end && !utf8.FullRune(b) {
			break
		}
		broken := 1 // the longest start of b that could have become a character
		for broken < len(b) && !utf8.FullRune(b[:broken+1]) {
			broken++
		}
		marks := 1
		if !s.t.decoder.byteLevel {
			marks = broken
		}
		for range marks {
			s.out = utf8.AppendRune(s.out, utf8.RuneError)
		}
		b = b[broken:]
	}
	s.tail = append(s.tail[:0], b...)
}

// appendTokenBytes undoes the byte-level alphabet; a token with any other character stands for its own text.
func appendTokenBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst
}

// byteToken reads the <0x0A> form.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(token[3])
	lo, ok2 := hexDigit(token[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// Decode returns the text of ids, as the reference does. skipSpecial leaves control tokens out; ids without a token have no text.
//
// In one case it differs from Text: with byte fallback, the reference turns a whole run of byte tokens to U+FFFD when any byte of it is broken, the
// finished characters in it too. No stream can know that in time.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	s.runs = t.decoder.byteFallback
	return s.all(ids)
}

// Text returns what a Stream returns for ids, in one piece. Answers that may also be streamed should be made with it.
func (t *Tokenizer) Text(ids []int32, skipSpecial bool) string {
	return t.NewStream(skipSpecial).all(ids)
}

func (s *Stream) all(ids []int32) string {
	for _, id := range ids {
		s.push(id)
	}
	s.settle(true)
	return s.take()
}
