package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/tokenizer"
)

// logProb is a log-probability; JSON has no infinities, so one that is not finite is null.
type logProb float64

func (p logProb) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(p))
}

// tokenInfo is one token of an answer or of an echoed prompt, with its rivals.
type tokenInfo struct {
	id      int32
	lp      float64 // NaN: none, the first token of a prompt
	top     []model.Ranked
	start   int // bytes of the choice's text before it
	startCh int // characters of the choice's text before it
}

// tokenText is a token as the completions API spells it: its text, or its bytes where they are not characters.
func tokenText(t *tokenizer.Tokenizer, id int32) string {
	b := t.Bytes(id)
	if utf8.Valid(b) {
		return string(b)
	}
	var s bytes.Buffer
	s.WriteString("bytes:")
	for _, c := range b {
		fmt.Fprintf(&s, `\x%02x`, c)
	}
	return s.String()
}

// ranks is a JSON object of token texts and log-probabilities, best first.
type ranks struct {
	names []string
	lps   []float64
}

func (r *ranks) add(name string, lp float64) {
	for _, n := range r.names {
		if n == name {
			return
		}
	}
	r.names, r.lps = append(r.names, name), append(r.lps, lp)
}

func (r *ranks) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, n := range r.names {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(n)
		if err != nil {
			return nil, err
		}
		v, err := logProb(r.lps[i]).MarshalJSON()
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// completionLogprobs is the completions API's shape.
type completionLogprobs struct {
	Tokens        []string  `json:"tokens"`
	TokenLogprobs []logProb `json:"token_logprobs"`
	TopLogprobs   []*ranks  `json:"top_logprobs"`
	TextOffset    []int     `json:"text_offset"`
}

func newCompletionLogprobs(t *tokenizer.Tokenizer, infos []tokenInfo) *completionLogprobs {
	l := &completionLogprobs{Tokens: []string{}, TokenLogprobs: []logProb{}, TopLogprobs: []*ranks{}, TextOffset: []int{}}
	for _, x := range infos {
		text := tokenText(t, x.id)
		l.Tokens, l.TokenLogprobs = append(l.Tokens, text), append(l.TokenLogprobs, logProb(x.lp))
		l.TextOffset = append(l.TextOffset, x.startCh)
		if math.IsNaN(x.lp) {
			l.TopLogprobs = append(l.TopLogprobs, nil)
			continue
		}
		r := &ranks{}
		for _, y := range x.top {
			r.add(tokenText(t, y.ID), y.LogProb)
		}
		r.add(text, x.lp)
		l.TopLogprobs = append(l.TopLogprobs, r)
	}
	return l
}

// chatLogprob is one token in the chat API's shape.
type chatLogprob struct {
	Token   string        `json:"token"`
	LogProb logProb       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []chatLogprob `json:"top_logprobs,omitempty"`
}

// chatLogprobs is the chat API's shape.
type chatLogprobs struct {
	Content []chatToken `json:"content"`
	Refusal *string     `json:"refusal"`
}

// chatToken is a chatLogprob that always has its list of rivals.
type chatToken struct {
	chatLogprob
	Top []chatLogprob `json:"top_logprobs"`
}

func newChatLogprob(t *tokenizer.Tokenizer, id int32, lp float64) chatLogprob {
	b := t.Bytes(id)
	c := chatLogprob{Token: string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), LogProb: logProb(lp), Bytes: []int{}}
	for _, v := range b {
		c.Bytes = append(c.Bytes, int(v))
	}
	return c
}

func newChatLogprobs(t *tokenizer.Tokenizer, infos []tokenInfo) *chatLogprobs {
	l := &chatLogprobs{Content: []chatToken{}}
	for _, x := range infos {
		c := chatToken{newChatLogprob(t, x.id, x.lp), []chatLogprob{}}
		for _, y := range x.top {
			c.Top = append(c.Top, newChatLogprob(t, y.ID, y.LogProb))
		}
		l.Content = append(l.Content, c)
	}
	return l
}
