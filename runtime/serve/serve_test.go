package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
)

// site is a running server and its client.
type site struct {
	*Server
	t   testing.TB
	url string
	e   *engine.Engine
}

// open serves a bundle, with its chat template if it has one.
func open(t testing.TB, dir string, eo engine.Options, o Options) *site {
	t.Helper()
	e := enginetest.Open(t, dir, eo)
	if o.Model == "" {
		o.Model = "m"
	}
	if e.Bundle.Has("chat_template.jinja") && o.Template == nil {
		b, err := os.ReadFile(e.Bundle.Path("chat_template.jinja"))
		if err != nil {
			t.Fatal(err)
		}
		token := func(id int) string { s, _ := e.Tokenizer.Token(int32(id)); return s }
		if o.Template, err = chat.New(string(b), token(e.Config.BOS), token(e.Config.EOS[0])); err != nil {
			t.Fatal(err)
		}
		o.TemplateText = string(b)
	}
	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return &site{Server: s, t: t, url: h.URL, e: e}
}

// reply is an answer of either endpoint, streamed or not.
type reply struct {
	status int
	header http.Header
	body   string
	texts  []string // by choice
	finish []string
	deltas [][]string // by choice, the pieces that were not empty
	usage  *usage
	done   bool // [DONE] was there
	err    *apiError
}

type wireChoice struct {
	Index   int     `json:"index"`
	Text    *string `json:"text"`
	Message *struct {
		Role    string  `json:"role"`
		Content *string `json:"content"`
	} `json:"message"`
	Delta *struct {
		Role    string  `json:"role"`
		Content *string `json:"content"`
	} `json:"delta"`
	Logprobs json.RawMessage `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`
}

type wire struct {
	Object  string       `json:"object"`
	Choices []wireChoice `json:"choices"`
	Usage   *usage       `json:"usage"`
	Error   *apiError    `json:"error"`
}

// MarshalJSON's inverse, for tests: null is NaN's stand-in.
type wireLogprobs struct {
	Tokens        []string              `json:"tokens"`
	TokenLogprobs []*float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]*float64 `json:"top_logprobs"`
	TextOffset    []int                 `json:"text_offset"`
}

func (s *site) do(method, path, body string, header map[string]string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			req.Host = v
		} else {
			req.Header.Set(k, v)
		}
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// post sends body to path and reads the whole answer, whatever its form; it fails the test when the form is wrong.
func (s *site) post(path, body string) *reply {
	s.t.Helper()
	return s.read(s.do("POST", path, body, nil))
}

func (s *site) read(resp *http.Response) *reply {
	s.t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if !utf8.Valid(b) {
		s.t.Errorf("the answer is not UTF-8: %q", b)
	}
	r := &reply{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		var w wire
		if err := json.Unmarshal(b, &w); err != nil {
			s.t.Fatalf("%v in %q", err, b)
		}
		r.take(s.t, w)
		if (resp.StatusCode == 200) != (r.err == nil) || r.err != nil && (r.err.Message == "" || r.err.Type == "") {
			s.t.Errorf("status %d with error %+v", resp.StatusCode, r.err)
		}
		return r
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		line := sc.Text()
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case line == "" || strings.HasPrefix(line, ":"):
		case !ok || r.done:
			s.t.Errorf("stream line %q", line)
		case data == "[DONE]":
			r.done = true
		default:
			var w wire
			if err := json.Unmarshal([]byte(data), &w); err != nil {
				s.t.Fatalf("%v in %q", err, data)
			}
			r.take(s.t, w)
		}
	}
	return r
}

func (r *reply) take(t testing.TB, w wire) {
	t.Helper()
	r.err = w.Error
	if w.Usage != nil {
		r.usage = w.Usage
	}
	for _, c := range w.Choices {
		for len(r.texts) <= c.Index {
			r.texts, r.finish, r.deltas = append(r.texts, ""), append(r.finish, ""), append(r.deltas, nil)
		}
		var piece string
		switch {
		case c.Text != nil:
			piece = *c.Text
		case c.Message != nil && c.Message.Content != nil:
			piece = *c.Message.Content
		case c.Delta != nil && c.Delta.Content != nil:
			piece = *c.Delta.Content
		}
		r.texts[c.Index] += piece
		if piece != "" {
			r.deltas[c.Index] = append(r.deltas[c.Index], piece)
		}
		if c.Finish != nil {
			if r.finish[c.Index] != "" {
				t.Errorf("choice %d finishes twice", c.Index)
			}
			r.finish[c.Index] = *c.Finish
		}
	}
}

// first fails unless the answer has one choice with this text and finish.
func (r *reply) first(t testing.TB, what, text, finish string) {
	t.Helper()
	if r.status != 200 || r.err != nil || len(r.texts) != 1 || r.texts[0] != text || r.finish[0] != finish {
		t.Errorf("%s: status %d, text %q, finish %q, error %+v; want %q, %q", what, r.status, r.texts, r.finish, r.err, text, finish)
	}
}

// logprobs reads the log-probabilities of a choice of an answer that was not streamed.
func (r *reply) logprobs(t testing.TB, choice int) wireLogprobs {
	t.Helper()
	var w struct {
		Choices []struct {
			Logprobs wireLogprobs `json:"logprobs"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(r.body), &w); err != nil || len(w.Choices) <= choice {
		t.Fatalf("%v in %q", err, r.body)
	}
	return w.Choices[choice].Logprobs
}

const tinyPrompt = "The fog had not lifted yet when"

// TestSameText holds that greedy text is the same from Generate and from the server, streamed and not, by both
// endpoints, cold and warm, in every mode.
func TestSameText(t *testing.T) {
	dir := enginetest.Tiny(t)
	for _, o := range enginetest.Modes() {
		ref := enginetest.Open(t, dir, o)
		s := open(t, dir, o, Options{})
		ids, _ := ref.Tokenizer.EncodeCompletion(tinyPrompt)
		want, err := ref.Generate(context.Background(), engine.Request{Prompt: ids, MaxTokens: 40}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, stream := range []bool{false, true, false} {
			body := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":40,"temperature":0,"stream":%v}`, tinyPrompt, stream)
			r := s.post("/v1/completions", body)
			r.first(t, fmt.Sprintf("%s, stream %v", o.Mode, stream), want.Text, want.Finish)
			if stream != r.done {
				t.Errorf("%s: done is %v", o.Mode, r.done)
			}
		}
		msgs := []chat.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Tell me a story."}}
		if ids, err = s.o.Template.Encode(ref.Tokenizer, msgs, true); err != nil {
			t.Fatal(err)
		}
		ref.Reset()
		if want, err = ref.Generate(context.Background(), engine.Request{Prompt: ids, MaxTokens: 40}, nil); err != nil {
			t.Fatal(err)
		}
		for _, stream := range []bool{true, false} {
			body := fmt.Sprintf(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Tell me a story."}],"max_completion_tokens":40,"temperature":0,"stream":%v,"cache_prompt":%v}`, stream, stream)
			s.post("/v1/chat/completions", body).first(t, fmt.Sprintf("%s, chat, stream %v", o.Mode, stream), want.Text, want.Finish)
		}
	}
}

// TestCachedPrompt holds that a conversation goes on from the cache, and what usage says about it.
func TestCachedPrompt(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{}, Options{})
	r := s.post("/v1/completions", `{"prompt":[5,6,7,8],"max_tokens":3,"temperature":0}`)
	if r.usage.Prompt != 4 || r.usage.Completion != 3 || r.usage.Total != 7 || r.usage.Details.Cached != 0 {
		t.Errorf("usage %+v", r.usage)
	}
	if r = s.post("/v1/completions", `{"prompt":[5,6,7,8],"max_tokens":1,"temperature":0}`); r.usage.Details.Cached != 3 {
		t.Errorf("again: usage %+v", r.usage)
	}
	if r = s.post("/v1/completions", `{"prompt":[5,6,9,8],"max_tokens":1,"temperature":0}`); r.usage.Details.Cached != 2 {
		t.Errorf("another end: usage %+v", r.usage)
	}
	if r = s.post("/v1/completions", `{"prompt":[5,6,9,8],"max_tokens":1,"cache_prompt":false}`); r.usage.Details.Cached != 0 {
		t.Errorf("without cache: usage %+v", r.usage)
	}
}

// TestUsageChunk holds that the usage comes in a stream only when asked for, in a chunk without choices.
func TestUsageChunk(t *testing.T) {
	s := open(t, enginetest.Tiny(t), engine.Options{}, Options{})
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		in := `"prompt":"a"`
		if strings.Contains(path, "chat") {
			in = `"messages":[{"role":"user","content":"a"}]`
		}
		for _, opt := range []string{"", `,"stream_options":{"include_usage":false}`, `,"stream_options":null`, `,"stream_options":{"include_usage":true}`} {
			r := s.post(path, `{`+in+`,"max_tokens":3,"temperature":0,"ignore_eos":true,"stream":true`+opt+`}`)
			want := strings.Contains(opt, "true")
			if !r.done || (r.usage != nil) != want || want && (r.usage.Completion != 3 || !strings.Contains(r.body, `"choices":[],"usage"`)) {
				t.Errorf("%s%s: %s", path, opt, r.body)
			}
		}
	}
}
