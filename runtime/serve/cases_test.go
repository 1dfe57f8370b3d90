package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
	"neuroprefetcher/runtime/eval"
)

const echoTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}"

// alphaBeta is a rig that goes on after "x" with al, pha be, ta.
func alphaBeta() *enginetest.Rig {
	r := &enginetest.Rig{Tokens: []string{"al", "pha be", "ta"}, Template: echoTemplate}
	f := enginetest.FirstFree
	r.Chain(enginetest.Byte('x'), f, f+1, f+2, enginetest.EOS)
	return r
}

// both posts the same request to both endpoints, streamed and not.
func (s *site) both(t *testing.T, prompt, rest string, check func(what string, r *reply)) {
	t.Helper()
	for _, stream := range []string{"", `,"stream":true`} {
		check("completions"+stream, s.post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"temperature":0%s%s}`, prompt, rest, stream)))
		check("chat"+stream, s.post("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"temperature":0%s%s}`, prompt, rest, stream)))
	}
}

// TestStopStrings holds that stop strings end a text wherever tokens begin and end.
func TestStopStrings(t *testing.T) {
	s := open(t, alphaBeta().Bundle(t), engine.Options{}, Options{})
	for _, c := range []struct{ stop, text string }{
		{`["a b"]`, "alph"}, {`"a b"`, "alph"}, {`["betas"]`, "alpha beta"}, {`null`, "alpha beta"}, {`""`, "alpha beta"}, {`[""]`, "alpha beta"}, {`[]`, "alpha beta"},
		{`["ta"]`, "alpha be"}, {`["beta"]`, "alpha "}, {`["alpha beta"]`, ""}, {`["l"]`, "a"}, {`["zzz","pha"]`, "al"}, {`["a beta","ha b"]`, "alp"},
		{`["tab","b","c","d"]`, "alpha "}, {`["alpha beta!"]`, "alpha beta"},
	} {
		s.both(t, "x", `,"max_tokens":20,"stop":`+c.stop, func(what string, r *reply) {
			r.first(t, what+" stop "+c.stop, c.text, "stop")
		})
	}
	// Held no longer than needed: each token's text comes with the token, save what may begin a stop string.
	r := s.post("/v1/completions", `{"prompt":"x","temperature":0,"stream":true,"stop":["zebra"]}`)
	if want := []string{"al", "pha be", "ta"}; !slices.Equal(r.deltas[0], want) {
		t.Errorf("pieces %q, want %q", r.deltas[0], want)
	}
	r = s.post("/v1/completions", `{"prompt":"x","temperature":0,"stream":true,"stop":["betas"]}`)
	if want := []string{"al", "pha ", "beta"}; !slices.Equal(r.deltas[0], want) {
		t.Errorf("pieces %q, want %q", r.deltas[0], want)
	}
	// Log-probabilities stop with the text.
	r = s.post("/v1/completions", `{"prompt":"x","temperature":0,"stop":["be"],"logprobs":0}`)
	if lp := r.logprobs(t, 0); r.texts[0] != "alpha " || !slices.Equal(lp.Tokens, []string{"al", "pha be"}) || !slices.Equal(lp.TextOffset, []int{0, 2}) {
		t.Errorf("%q with tokens %q at %v", r.texts[0], lp.Tokens, lp.TextOffset)
	}
}

// TestStopperCuts compares the stopper with itself on every way to cut some texts, and with a search of the whole text.
func TestStopperCuts(t *testing.T) {
	for _, stops := range [][]string{{"ab"}, {"ab", "abc"}, {"abc", "b"}, {"aab"}, {"aa", "aaa"}, {"bcd", "c"}, {"é"}, {"xyz"}, {"ca", "ab"}} {
		for _, text := range []string{"", "abc", "xabcy", "aaab", "aabab", "abcd", "caféb", "xyxyz", "bcab", "zzz"} {
			run := func(pieces []string) (string, bool) {
				s, out := stopper{stops: stops}, ""
				for _, p := range pieces {
					certain, hit := s.push(p)
					out += certain
					if hit {
						return out, true
					}
				}
				return out + s.flush(), false
			}
			want, wantHit := text, false
			for end := 0; end <= len(text) && !wantHit; end++ { // the first stop string to end, the longest of them
				for _, stop := range stops {
					if strings.HasSuffix(text[:end], stop) && (!wantHit || end-len(stop) < len(want)) {
						want, wantHit = text[:end-len(stop)], true
					}
				}
			}
			runes := []rune(text)
			for mask := range 1 << max(0, len(runes)-1) {
				var pieces []string
				from := 0
				for i := range runes {
					if i == len(runes)-1 || mask>>i&1 != 0 {
						pieces = append(pieces, string(runes[from:i+1]))
						from = i + 1
					}
				}
				if got, hit := run(pieces); got != want || hit != wantHit {
					t.Fatalf("stops %q, pieces %q: %q %v, want %q %v", stops, pieces, got, hit, want, wantHit)
				}
			}
		}
	}
}

// TestStopInFinalFlush holds that a stop string is seen that is only there once half a character is given up.
func TestStopInFinalFlush(t *testing.T) {
	r := &enginetest.Rig{Template: echoTemplate}
	r.Chain(enginetest.Byte('x'), enginetest.Byte('a'), enginetest.Byte(0xF0), enginetest.EOS)
	s := open(t, r.Bundle(t), engine.Options{}, Options{})
	s.both(t, "x", `,"max_tokens":9`, func(what string, r *reply) { r.first(t, what, "a\uFFFD", "stop") })
	s.both(t, "x", `,"max_tokens":2`, func(what string, r *reply) { r.first(t, what, "a\uFFFD", "length") })
	s.both(t, "x", `,"max_tokens":2,"stop":"\ufffd"`, func(what string, r *reply) { r.first(t, what, "a", "stop") })
}

// TestEchoAtTheEnd holds that where the model ends its text at once, the list of an echo has still one log-probability
// more than the prompt has tokens, since clients that score an ending leave the last one out.
func TestEchoAtTheEnd(t *testing.T) {
	rig := &enginetest.Rig{Template: echoTemplate}
	rig.Chain(enginetest.Byte('n'), enginetest.EOS)
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	for _, stream := range []bool{false, true} {
		r := s.post("/v1/completions", fmt.Sprintf(`{"prompt":"xn","echo":true,"logprobs":1,"max_tokens":1,"temperature":0,"stream":%v}`, stream))
		r.first(t, "echo", "xn", "stop")
		if !strings.Contains(string(r.body), `["\u003c/s\u003e"]`) && !strings.Contains(string(r.body), `"n","\u003c/s\u003e"]`) {
			t.Errorf("stream %v: the token that ended the text has no log-probability: %s", stream, r.body)
		}
		// Without an echo there is nothing to leave out.
		r = s.post("/v1/completions", fmt.Sprintf(`{"prompt":"xn","logprobs":1,"max_tokens":1,"temperature":0,"stream":%v}`, stream))
		r.first(t, "no echo", "", "stop")
	}
	r := s.post("/v1/completions", `{"prompt":"xn","echo":true,"logprobs":1,"max_tokens":1,"temperature":0}`)
	none := s.post("/v1/completions", `{"prompt":"xn","echo":true,"logprobs":1,"max_tokens":0}`)
	if got, prompt := len(r.logprobs(t, 0).Tokens), len(none.logprobs(t, 0).Tokens); got != prompt+1 || r.usage.Completion != 0 {
		t.Errorf("%d log-probabilities for %d tokens of the prompt, %d counted", got, prompt, r.usage.Completion)
	}
}

// TestNaN holds that scores that are not numbers are a 500 with a reason, and that the next request is not hurt.
func TestNaN(t *testing.T) {
	r := alphaBeta()
	r.NaN = []int{enginetest.FirstFree + 1, enginetest.Byte('n')}
	dir := r.Bundle(t)
	for _, o := range enginetest.Modes() {
		s := open(t, dir, o, Options{})
		s.both(t, "n", "", func(what string, r *reply) { // in the prompt: nothing was sent yet
			if r.status != 500 || r.err == nil || !strings.Contains(r.err.Message, "not finite") || !strings.Contains(r.err.Message, o.Mode) {
				t.Errorf("%s %s: %d %+v", o.Mode, what, r.status, r.err)
			}
		})
		for _, stream := range []bool{false, true} { // after two tokens
			r := s.post("/v1/completions", fmt.Sprintf(`{"prompt":"x","temperature":0,"stream":%v,"logprobs":2}`, stream))
			if r.err == nil || !strings.Contains(r.err.Message, "not finite") || r.done || !stream && r.status != 500 {
				t.Errorf("%s: %s", o.Mode, r.body)
			}
		}
		r := s.post("/v1/completions", `{"prompt":"xn","echo":true,"logprobs":1,"max_tokens":1}`)
		if r.status != 500 {
			t.Errorf("%s: echo: %s", o.Mode, r.body)
		}
		s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":2}`).first(t, o.Mode+" afterwards", "alpha be", "length")
	}
}

func TestNonFiniteLogProbIsNull(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		b, err := json.Marshal(completionLogprobs{TokenLogprobs: []logProb{logProb(v), -1}, TopLogprobs: []*ranks{{[]string{"a"}, []float64{v}}}})
		if err != nil || !strings.Contains(string(b), `"token_logprobs":[null,-1],"top_logprobs":[{"a":null}]`) {
			t.Errorf("%v: %s, %v", v, b, err)
		}
		c := chatLogprob{Token: "a", LogProb: logProb(v), Bytes: []int{97}}
		b, err = json.Marshal(chatToken{c, []chatLogprob{c}})
		if want := `{"token":"a","logprob":null,"bytes":[97]`; err != nil || string(b) != want+`,"top_logprobs":[`+want+`}]}` {
			t.Errorf("%v: %s, %v", v, b, err)
		}
	}
}

// TestEcho holds log-probabilities of a given text against those of package eval and a softmax of the logits.
func TestEcho(t *testing.T) {
	dir := enginetest.Tiny(t)
	for _, o := range enginetest.Modes() {
		s, ref := open(t, dir, o, Options{}), enginetest.Open(t, dir, o)
		want, err := eval.LogProbs(context.Background(), ref, []int32{5, 6, 7, 8})
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range []int{6, 7, 8} { // a softmax by the book; in sparse mode steps and prompts differ
			if o.Mode == engine.ModeSparse {
				break
			}
			ref.Reset()
			logits, err := ref.Prefill(context.Background(), []int32{5, 6, 7}[:i+1])
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, v := range logits {
				sum += math.Exp(float64(v) - float64(logits[id]))
			}
			if math.Abs(-math.Log(sum)-want[i+1]) > 1e-4 {
				t.Errorf("%s: token %d has %v, by the book %v", o.Mode, i+1, want[i+1], -math.Log(sum))
			}
		}
		for _, n := range []int{0, 1} {
			r := s.post("/v1/completions", fmt.Sprintf(`{"prompt":[[5,6,7,8]],"echo":true,"logprobs":1,"max_tokens":%d,"temperature":0}`, n))
			lp := r.logprobs(t, 0)
			if len(lp.Tokens) != 4+n || len(lp.TokenLogprobs) != 4+n || len(lp.TopLogprobs) != 4+n || len(lp.TextOffset) != 4+n {
				t.Fatalf("%s: %s", o.Mode, r.body)
			}
			if lp.TokenLogprobs[0] != nil || lp.TopLogprobs[0] != nil {
				t.Errorf("%s: the first token has a log-probability: %s", o.Mode, r.body)
			}
			for i := 1; i < 4; i++ {
				if math.Abs(*lp.TokenLogprobs[i]-want[i]) > 2e-3 {
					t.Errorf("%s: token %d: %v, want %v", o.Mode, i, *lp.TokenLogprobs[i], want[i])
				}
			}
			for i := 1; i < 4+n; i++ {
				best := math.Inf(-1)
				for _, v := range lp.TopLogprobs[i] {
					best = max(best, *v)
				}
				if *lp.TokenLogprobs[i] > best || lp.TopLogprobs[i][lp.Tokens[i]] == nil || *lp.TopLogprobs[i][lp.Tokens[i]] != *lp.TokenLogprobs[i] || i == 4 && *lp.TokenLogprobs[4] != best {
					t.Errorf("%s: token %d is not among its rivals: %s", o.Mode, i, r.body)
				}
			}
			text := ref.Tokenizer.Text([]int32{5, 6, 7, 8}, true)
			if !strings.HasPrefix(r.texts[0], text) || n == 0 && r.texts[0] != text || r.usage.Completion != n {
				t.Errorf("%s: %s", o.Mode, r.body)
			}
		}
		// Echo without log-probabilities, and streamed with them.
		r := s.post("/v1/completions", `{"prompt":["The fog","a"],"echo":true,"max_tokens":0}`)
		if !slices.Equal(r.texts, []string{"The fog", "a"}) || !slices.Equal(r.finish, []string{"length", "length"}) {
			t.Errorf("%s: %s", o.Mode, r.body)
		}
		r = s.post("/v1/completions", `{"prompt":"The fog","echo":true,"logprobs":2,"max_tokens":4,"temperature":0,"stream":true}`)
		whole := s.post("/v1/completions", `{"prompt":"The fog","echo":true,"logprobs":2,"max_tokens":4,"temperature":0}`)
		r.first(t, o.Mode+" streamed echo", whole.texts[0], "length")
		if len(r.deltas[0]) != 5 || r.deltas[0][0] != "The fog" {
			t.Errorf("%s: pieces %q", o.Mode, r.deltas[0])
		}
		lp := whole.logprobs(t, 0)
		for i, text := range lp.Tokens {
			if at := []rune(whole.texts[0])[lp.TextOffset[i]:]; !strings.HasPrefix(string(at), text) {
				t.Errorf("%s: token %q is not at %d of %q", o.Mode, text, lp.TextOffset[i], whole.texts[0])
			}
		}
	}
}

// TestPrompts holds what a prompt may be.
func TestPrompts(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{}, Options{})
	for prompt, choices := range map[string]int{`"a"`: 1, `["a","b"]`: 2, `[5,6]`: 1, `[[5],[6],[7,8]]`: 3, `""`: 1, `["a"]`: 1} {
		r := s.post("/v1/completions", `{"prompt":`+prompt+`,"max_tokens":2,"temperature":0,"ignore_eos":true}`)
		if r.status != 200 || len(r.texts) != choices {
			t.Errorf("%s: %s", prompt, r.body)
		}
		r2 := s.post("/v1/completions", `{"prompt":`+prompt+`,"max_tokens":2,"temperature":0,"ignore_eos":true,"stream":true,"n":2}`)
		if r2.status != 200 || len(r2.texts) != 2*choices || !r2.done {
			t.Errorf("%s: %s", prompt, r2.body)
			continue
		}
		for i := range r2.texts {
			if r2.texts[i] != r.texts[i/2] {
				t.Errorf("%s: choice %d is %q, want %q", prompt, i, r2.texts[i], r.texts[i/2])
			}
		}
	}
	for _, prompt := range []string{`[]`, `[-1]`, `[99999]`, `[[]]`, `[[5],[]]`, `[1.5]`, `{}`, `7`, `true`, `["a",5]`, `[["a"]]`, `[5,[6]]`, `null`} {
		if r := s.post("/v1/completions", `{"prompt":`+prompt+`}`); r.status != 400 || r.err.Param == nil || *r.err.Param != "prompt" {
			t.Errorf("%s: %d %s", prompt, r.status, r.body)
		}
	}
	// A prompt of nothing needs a token to begin with.
	rig := open(t, alphaBeta().Bundle(t), engine.Options{}, Options{})
	if r := rig.post("/v1/completions", `{"prompt":"","max_tokens":1}`); r.status != 200 || r.usage.Prompt != 1 {
		t.Errorf("empty prompt: %s", r.body)
	}
}

// TestBadRequests holds that every fault is a 4xx in OpenAI's shape that names the field.
func TestBadRequests(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{}, Options{})
	user := `"messages":[{"role":"user","content":"a"}]`
	for _, c := range []struct{ path, body, param, text string }{
		{"", `{"prompt":"a","stream":"yes"}`, "stream", "true or false"},
		{"", `{"prompt":"a",}`, "", "not a JSON object"},
		{"", `{"prompt":"a"} x`, "", "goes on"},
		{"", ``, "", "not a JSON object"}, {"", `null`, "", "null"}, {"", `[]`, "", "not a JSON object"}, {"", `"a"`, "", "not a JSON object"},
		{"", "\xff\xfe", "", "not UTF-8"}, {"", "{\"prompt\":\"\xff\xfe\"}", "", "not UTF-8"},
		{"", `{"prompt":"\ud83d"}`, "", "surrogate"}, {"", `{"prompt":"\ude00\ud83d"}`, "", "surrogate"}, {"", `{"prompt":"\ud83d\\u0041"}`, "", "surrogate"},
		{"", `{}`, "prompt", "missing"},
		{"", `{"prompt":"a","frobnicate":1}`, "frobnicate", "not supported"},
		{"", `{"prompt":"a","suffix":"b"}`, "suffix", "not supported"},
		{"", `{"prompt":"a","best_of":3}`, "best_of", "same as n"},
		{"", `{"prompt":"a","temperature":-1}`, "temperature", "number"}, {"", `{"prompt":"a","temperature":"0"}`, "temperature", "number"},
		{"", `{"prompt":"a","top_p":1.5}`, "top_p", "number"}, {"", `{"prompt":"a","min_p":-0.1}`, "min_p", "number"}, {"", `{"prompt":"a","top_k":1.5}`, "top_k", "whole"},
		{"", `{"prompt":"a","max_tokens":-1}`, "max_tokens", "whole"}, {"", `{"prompt":"a","max_tokens":1e99}`, "max_tokens", "whole"},
		{"", `{"prompt":"a","max_tokens":3,"max_completion_tokens":4}`, "max_completion_tokens", "same"},
		{"", `{"prompt":"a","n":0}`, "n", "whole"}, {"", `{"prompt":["a","b"],"n":200}`, "n", "256"},
		{"", `{"prompt":"a","seed":"x"}`, "seed", "whole"},
		{"", `{"prompt":"a","logprobs":true}`, "logprobs", "whole"}, {"", `{"prompt":"a","logprobs":21}`, "logprobs", "20"},
		{"", `{"prompt":"a","stop":["a","b","c","d","e"]}`, "stop", "4"}, {"", `{"prompt":"a","stop":5}`, "stop", "string"},
		{"", `{"prompt":"a","stop":"` + strings.Repeat("x", 2000) + `"}`, "stop", "1024"},
		{"", `{"prompt":"a","logit_bias":{"x":1}}`, "logit_bias", "ids"}, {"", `{"prompt":"a","logit_bias":{"5":101}}`, "logit_bias", "100"},
		{"", `{"prompt":"a","logit_bias":{"99999":1}}`, "logit_bias", "1023"}, {"", `{"prompt":"a","logit_bias":[1]}`, "logit_bias", "object"},
		{"", `{"prompt":"a","stream_options":{"include_usage":true}}`, "stream_options", "stream is true"},
		{"", `{"prompt":"a","stream":true,"stream_options":{"x":1}}`, "stream_options.x", "not supported"},
		{"", `{"prompt":"a","model":"gpt-4"}`, "model", "gpt-4"},
		{"", `{"prompt":["a","b","c","d","e","f"],"n":40,"logprobs":20,"max_tokens":5000}`, "logprobs", "log-probabilities"},
		{"", `{"prompt":"a","presence_penalty":3}`, "presence_penalty", "number"},
		{"chat", `{}`, "messages", "missing"}, {"chat", `{"messages":[]}`, "messages", "empty"}, {"chat", `{"messages":"hi"}`, "messages", "list"},
		{"chat", `{"messages":["hi"]}`, "messages[0]", "object"}, {"chat", `{"messages":[null]}`, "messages[0]", "object"},
		{"chat", `{"messages":[{"content":"hi"}]}`, "messages[0].role", "string"}, {"chat", `{"messages":[{"role":"emperor","content":"hi"}]}`, "messages", "emperor"},
		{"chat", `{"messages":[{"role":"user","content":5}]}`, "messages[0].content", "string"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, "messages[0].content[0].type", "only text"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text", "string"},
		{"chat", `{"messages":[{"role":"user","content":["a"]}]}`, "messages[0].content", "parts"},
		{"chat", `{"messages":[{"role":"user","content":"a","name":"Bob"}]}`, "messages[0].name", "not supported"},
		{"chat", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{}]}]}`, "messages[0].tool_calls", "not supported"},
		{"chat", `{` + user + `,"tools":[{"type":"function"}]}`, "tools", "not supported"},
		{"chat", `{` + user + `,"response_format":{"type":"json_object"}}`, "response_format", "not supported"},
		{"chat", `{` + user + `,"top_logprobs":2}`, "top_logprobs", "logprobs"}, {"chat", `{` + user + `,"logprobs":1}`, "logprobs", "true"},
		{"chat", `{` + user + `,"max_tokens":0}`, "max_tokens", "whole"},
		{"chat", `{` + user + `,"prompt":"a"}`, "prompt", "not supported"},
	} {
		path := "/v1/completions"
		if c.path != "" {
			path = "/v1/chat/completions"
		}
		r := s.post(path, c.body)
		want := 400
		if c.param == "model" {
			want = 404
		}
		param := ""
		if r.err != nil && r.err.Param != nil {
			param = *r.err.Param
		}
		if r.status != want || param != c.param || !strings.Contains(r.err.Message, c.text) {
			t.Errorf("%s %.100s: %d %s", path, c.body, r.status, r.body)
		}
	}
	// What changes nothing is taken.
	for _, body := range []string{
		`{` + user + `,"max_tokens":1,"max_completion_tokens":1,"user":"u","n":1,"tools":[],"tool_choice":"none","response_format":{"type": "text"},"store":false,"logit_bias":null,"stop":null,"seed":null,"metadata":null}`,
		`{"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},{"role":"assistant","content":null,"refusal":null,"tool_calls":null},{"role":"user","content":""}],"max_tokens":1}`,
	} {
		if r := s.post("/v1/chat/completions", body); r.status != 200 {
			t.Errorf("%s: %s", body, r.body)
		}
	}
}

// TestContent holds that text parts, null and missing contents of every role reach the prompt as they are.
func TestContent(t *testing.T) {
	rig := &enginetest.Rig{Template: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"}
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	for _, role := range []string{"system", "user", "assistant", "developer"} {
		shown := role
		if role == "developer" {
			shown = "system" // the template does not know developers
		}
		for content, want := range map[string]string{`"ab"`: "ab", `null`: "", `""`: "", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: "a\nb", `[]`: ""} {
			r := s.post("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":%q,"content":%s}],"max_tokens":1}`, role, content))
			if n := len("[" + shown + "]" + want); r.status != 200 || r.usage.Prompt != n {
				t.Errorf("%s %s: %d %s, want %d tokens", role, content, r.status, r.body, n)
			}
		}
	}
}

// TestLongPrompts holds that a prompt that leaves no room is refused with both numbers, and that one that leaves little is
// answered as far as there is room.
func TestLongPrompts(t *testing.T) {
	rig := &enginetest.Rig{Template: echoTemplate}
	rig.Chain(enginetest.Byte('x'), enginetest.Byte('x'))
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	for n := 250; n < 260; n++ {
		prompt := strings.Repeat("x", n)
		s.both(t, prompt, `,"max_tokens":1000`, func(what string, r *reply) {
			if n < 256 {
				if r.status != 200 || r.finish[0] != "length" || len(r.texts[0]) < 1 {
					t.Errorf("%s, %d tokens: %s", what, n, r.body)
				}
			} else if r.status != 400 || !strings.Contains(r.err.Message, fmt.Sprint(n)) || !strings.Contains(r.err.Message, "256") || *r.err.Code != "context_length_exceeded" {
				t.Errorf("%s, %d tokens: %s", what, n, r.body)
			}
		})
	}
	if r := s.post("/v1/completions", `{"prompt":"`+strings.Repeat("x", 256)+`","echo":true,"logprobs":0,"max_tokens":0}`); r.status != 200 || len(r.logprobs(t, 0).Tokens) != 256 {
		t.Errorf("scoring a whole context: %s", r.body)
	}
}

// TestPaddedVocabulary holds that ids without a token have no text and are counted.
func TestPaddedVocabulary(t *testing.T) {
	rig := &enginetest.Rig{Rows: 384, Template: echoTemplate}
	rig.Chain(enginetest.Byte('x'), 350, 350)
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	for _, extra := range []string{"", `,"logprobs":2`, `,"logprobs":2,"stream":true,"stream_options":{"include_usage":true}`} {
		r := s.post("/v1/completions", `{"prompt":"x","max_tokens":8,"temperature":0`+extra+`}`)
		r.first(t, extra, "", "length")
		if r.usage.Completion != 8 {
			t.Errorf("%s: %s", extra, r.body)
		}
	}
	if r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":8,"temperature":0,"logprobs":true,"top_logprobs":3}`); r.usage.Completion != 8 || r.texts[0] != "" {
		t.Errorf("chat: %s", r.body)
	}
}

// TestHalfCharacters holds that what is streamed is whole characters, as soon as they are whole, and joins to the whole text.
func TestHalfCharacters(t *testing.T) {
	for _, c := range []struct {
		bytes  string
		max    int
		deltas []string
	}{
		{"\xF0\x9F\x98\x80", 9, []string{"😀"}},
		{"\xF0\x9F\x98\x80", 2, []string{"\uFFFD"}},
		{"\xF0\x9FA", 9, []string{"\uFFFDA"}},
		{"ab\xC3\xA9c", 9, []string{"a", "b", "é", "c"}},
		{"\xC0\x80", 9, []string{"\uFFFD", "\uFFFD"}},
		{"\xED\xA0\x80", 9, []string{"\uFFFD\uFFFD", "\uFFFD"}},
	} {
		rig := &enginetest.Rig{Template: echoTemplate}
		ids := []int{enginetest.Byte('x')}
		for _, b := range []byte(c.bytes) {
			ids = append(ids, enginetest.Byte(b))
		}
		rig.Chain(append(ids, enginetest.EOS)...)
		s := open(t, rig.Bundle(t), engine.Options{}, Options{})
		s.both(t, "x", fmt.Sprintf(`,"max_tokens":%d`, c.max), func(what string, r *reply) {
			if r.status != 200 || r.texts[0] != strings.Join(c.deltas, "") {
				t.Errorf("%s %q: %s", what, c.bytes, r.body)
			}
			if strings.Contains(what, "stream") && !slices.Equal(r.deltas[0], c.deltas) {
				t.Errorf("%s %q: pieces %q, want %q", what, c.bytes, r.deltas[0], c.deltas)
			}
		})
		r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":9,"temperature":0,"logprobs":true}`)
		var got []int
		var raw struct {
			Choices []struct {
				Logprobs struct{ Content []struct{ Bytes []int } }
			}
		}
		if err := json.Unmarshal([]byte(r.body), &raw); err != nil {
			t.Fatal(err)
		}
		for _, x := range raw.Choices[0].Logprobs.Content {
			got = append(got, x.Bytes...)
		}
		var want []int
		for _, b := range []byte(c.bytes) {
			want = append(want, int(b))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: bytes %v", c.bytes, got)
		}
	}
}

// TestOneBOS holds that a template that prints the BOS gets no second one, and that a raw prompt gets one.
func TestOneBOS(t *testing.T) {
	rig := &enginetest.Rig{AddBOS: true, Template: "{{bos_token}}{% for m in messages %}[{{m.role}}]{{m.content}}{% endfor %}"}
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)
	if want := 1 + len("[user]hi"); r.usage.Prompt != want {
		t.Errorf("chat: %d prompt tokens, want %d", r.usage.Prompt, want)
	}
	for _, p := range []string{"hi", "<s>hi"} {
		if r := s.post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, p)); r.usage.Prompt != 3 {
			t.Errorf("%q: %d prompt tokens, want 3", p, r.usage.Prompt)
		}
	}
	// A user who types the BOS types text.
	if r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"<s>"}],"max_tokens":1}`); r.usage.Prompt != 1+len("[user]<s>") {
		t.Errorf("typed control token: %d prompt tokens", r.usage.Prompt)
	}
}

// TestNoTemplate holds that without a template chat is a clear 4xx and completions work.
func TestNoTemplate(t *testing.T) {
	rig := &enginetest.Rig{}
	rig.Chain(enginetest.Byte('x'), enginetest.Byte('y'), enginetest.EOS)
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	if r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`); r.status != 400 || !strings.Contains(r.err.Message, "no chat template") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.post("/v1/completions", `{"prompt":"x","temperature":0}`).first(t, "completion", "y", "stop")
}

// TestRaise holds that what a template raises reaches the client as a 400.
func TestRaise(t *testing.T) {
	rig := &enginetest.Rig{Template: `{% for m in messages %}{% if m.content == "bad" %}{{ raise_exception("no bad words") }}{% endif %}{{ m.content }}{% endfor %}`}
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	if r := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"bad"}]}`); r.status != 400 || !strings.Contains(r.err.Message, "no bad words") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// TestSampling holds that each parameter does what it says.
func TestSampling(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{}, Options{})
	text := func(extra string) string {
		t.Helper()
		r := s.post("/v1/completions", `{"prompt":"The","max_tokens":12,"ignore_eos":true,"cache_prompt":false`+extra+`}`)
		if r.status != 200 {
			t.Fatalf("%s: %s", extra, r.body)
		}
		return r.texts[0]
	}
	greedy := text(`,"temperature":0`)
	hot := `,"temperature":2,"seed":7`
	if a := text(hot); a != text(hot) || a == text(`,"temperature":2,"seed":8`) || a == greedy {
		t.Error("the seed does not decide")
	}
	for _, one := range []string{`,"top_k":1`, `,"top_p":0`, `,"top_p":0.000001`, `,"min_p":1`} {
		if got := text(hot + one); got != greedy {
			t.Errorf("%s gives %q, greedy is %q", one, got, greedy)
		}
	}
	if text(hot+`,"top_k":-1,"top_p":1,"min_p":0`) != text(hot) {
		t.Error("parameters that are off change something")
	}
	// Choices of one request differ by their seeds and are those of requests with those seeds.
	r := s.post("/v1/completions", `{"prompt":"The","max_tokens":12,"ignore_eos":true,"n":3`+hot+`}`)
	if len(r.texts) != 3 || r.texts[0] != text(hot) || r.texts[1] != text(`,"temperature":2,"seed":8`) || r.texts[1] == r.texts[2] {
		t.Errorf("n: %q", r.texts)
	}
	// A bias of 100 forces a token, one of -100 bans it; log-probabilities are the model's own all the same.
	id, _ := s.e.Tokenizer.ID("a")
	if got := text(fmt.Sprintf(`,"temperature":0,"logit_bias":{"%d":100}`, id)); got != strings.Repeat("a", 12) {
		t.Errorf("bias 100: %q", got)
	}
	ids := s.e.Tokenizer.Encode(greedy, false)
	if got := text(fmt.Sprintf(`,"temperature":0,"logit_bias":{"%d":-100}`, ids[0])); s.e.Tokenizer.Encode(got, false)[0] == ids[0] {
		t.Errorf("bias -100: %q", got)
	}
	b := s.post("/v1/completions", fmt.Sprintf(`{"prompt":"The","max_tokens":1,"temperature":0,"logprobs":1,"logit_bias":{"%d":100}}`, id))
	if lp := b.logprobs(t, 0); *lp.TokenLogprobs[0] > -0.5 || len(lp.TopLogprobs[0]) != 2 {
		t.Errorf("biased log-probability: %s", b.body)
	}
	long := func(extra string) string {
		return s.post("/v1/completions", `{"prompt":"The","max_tokens":80,"temperature":0`+extra+`}`).texts[0]
	}
	if long("") == long(`,"repetition_penalty":3`) || long("") != long(`,"repetition_penalty":1`) {
		t.Error("repetition_penalty does not decide")
	}
}

// TestFrequencyPenalty uses a rig that would repeat for ever.
func TestFrequencyPenalty(t *testing.T) {
	rig := &enginetest.Rig{}
	rig.Chain(enginetest.Byte('x'), enginetest.Byte('x'))
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":30}`).first(t, "plain", strings.Repeat("x", 30), "length")
	// The token's score is 32, the best other's far below 20: a penalty of 2 per occurrence wins before 30 tokens, one of 2 in all does not.
	s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":30,"presence_penalty":2}`).first(t, "presence", strings.Repeat("x", 30), "length")
	if r := s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":30,"frequency_penalty":2}`); r.texts[0] == strings.Repeat("x", 30) {
		t.Error("frequency_penalty does nothing")
	}
}

// TestGoneClient holds that the end of a connection ends the work for it, streamed or not, and that the next request is
// served.
func TestGoneClient(t *testing.T) {
	rig := &enginetest.Rig{Template: echoTemplate}
	rig.Chain(enginetest.Byte('x'), enginetest.Byte('x'))
	s := open(t, rig.Bundle(t), engine.Options{}, Options{})
	for _, stream := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":"x","temperature":0,"n":256,"max_tokens":250,"stream":%v}`, stream)))
		before := s.m.generated.Load()
		failed := make(chan error, 1)
		go func() {
			r, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			failed <- err
		}()
		waitFor(t, "tokens", func() bool { return s.m.generated.Load() > before+20 })
		cancel()
		if err := <-failed; err == nil {
			t.Fatal("the request ended by itself")
		}
		waitFor(t, "the engine to be free", func() bool { return s.m.running.Load() == 0 })
		if n := s.m.generated.Load() - before; n >= 256*250 {
			t.Errorf("stream %v: %d tokens for a client that had gone", stream, n)
		}
		s.post("/v1/completions", `{"prompt":"x","temperature":0,"max_tokens":3}`).first(t, "the next", "xxx", "length")
	}
	waitFor(t, "both to be counted", func() bool { return s.m.aborted.Load() == 2 })
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited two minutes for %s", what)
}
