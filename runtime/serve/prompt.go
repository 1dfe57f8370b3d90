package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
)

// prompt is what an answer continues.
type prompt struct {
	ids  []int32
	text string // what echo repeats
}

// readPrompts reads a string, a list of strings, a list of token ids, or a list of such lists.
func (s *Server) readPrompts(f *fields) ([]prompt, *apiError) {
	raw, ok := f.m["prompt"]
	if !ok {
		return nil, badRequest("prompt", "prompt is missing")
	}
	delete(f.m, "prompt")
	var one string
	var texts []string
	var ids []int64
	var lists [][]int64
	switch {
	case json.Unmarshal(raw, &one) == nil:
		texts = []string{one}
	case string(raw) == "[]":
		return nil, badRequest("prompt", "prompt is an empty list")
	case json.Unmarshal(raw, &texts) == nil:
	case json.Unmarshal(raw, &ids) == nil:
		texts, lists = nil, [][]int64{ids}
	case json.Unmarshal(raw, &lists) == nil:
		texts = nil
	default:
		return nil, badRequest("prompt", "prompt must be a string, a list of strings, a list of token ids or a list of such lists")
	}
	if len(texts)+len(lists) > maxChoices {
		return nil, badRequest("prompt", "prompt has %d prompts; at most %d are taken", len(texts)+len(lists), maxChoices)
	}
	var out []prompt
	for i, text := range texts {
		p := prompt{ids: s.rawIDs(text), text: text}
		if len(p.ids) == 0 {
			return nil, badRequest("prompt", "prompt %d is empty, and the model has no token to begin with", i)
		}
		out = append(out, p)
	}
	for i, list := range lists {
		var p prompt
		if len(list) == 0 {
			return nil, badRequest("prompt", "prompt %d is an empty list", i)
		}
		for j, id := range list {
			if id < 0 || id >= int64(s.e.Config.Vocab) {
				return nil, badRequest("prompt", "prompt %d: token %d has id %d, not in 0..%d", i, j, id, s.e.Config.Vocab-1)
			}
			p.ids = append(p.ids, int32(id))
		}
		p.text = s.e.Tokenizer.Text(p.ids, true)
		out = append(out, p)
	}
	return out, nil
}

// rawIDs encodes a prompt with the tokenizer's own specials, a BOS that the text brings along not doubled. An empty
// prompt of a model that has a BOS is that BOS.
func (s *Server) rawIDs(text string) []int32 {
	ids, _ := s.e.Tokenizer.EncodeCompletion(text)
	if len(ids) == 0 && s.e.Config.BOS >= 0 {
		ids = []int32{int32(s.e.Config.BOS)}
	}
	return ids
}

// fits refuses a prompt that leaves no room for an answer of more than zero tokens.
func (s *Server) fits(ids []int32, maxTokens int, param string) *apiError {
	most := s.e.Context()
	if maxTokens != 0 {
		most--
	}
	if len(ids) <= most {
		return nil
	}
	e := badRequest(param, "the prompt has %d tokens, the context holds %d with the answer; shorten the prompt or start the server with a larger --context", len(ids), s.e.Context())
	code := "context_length_exceeded"
	e.Code = &code
	return e
}

// readMessages reads a conversation and renders it with the model's template.
func (s *Server) readMessages(f *fields) ([]prompt, *apiError) {
	var raw []json.RawMessage
	if _, ok := f.m["messages"]; !ok {
		return nil, badRequest("messages", "messages is missing")
	}
	if !f.read("messages", "a list of messages", &raw) {
		return nil, f.err
	}
	if len(raw) == 0 {
		return nil, badRequest("messages", "messages is an empty list")
	}
	var msgs []chat.Message
	for i, r := range raw {
		at := fmt.Sprintf("messages[%d].", i)
		m := &fields{at: at}
		if json.Unmarshal(r, &m.m) != nil || m.m == nil {
			return nil, badRequest(fmt.Sprintf("messages[%d]", i), "messages[%d] must be an object", i)
		}
		m.dropNulls()
		role, ok := m.str("role")
		if !ok {
			m.fail("role", "a string")
		}
		if role == "developer" && !strings.Contains(s.o.TemplateText, "developer") {
			role = "system"
		}
		content, err := m.content()
		if err != nil {
			return nil, err
		}
		m.only("tool_calls", "[]") // what clients send back of an answer of ours
		m.only("annotations", "[]")
		if err := m.end(); err != nil {
			return nil, err
		}
		msgs = append(msgs, chat.Message{Role: role, Content: content})
	}
	ids, err := s.o.Template.Encode(s.e.Tokenizer, msgs, true)
	if err != nil {
		if !errors.Is(err, format.ErrInput) {
			return nil, toAPI(err)
		}
		return nil, badRequest("messages", "%v", err)
	}
	if len(ids) == 0 {
		return nil, badRequest("messages", "the chat template makes no prompt of these messages")
	}
	return []prompt{{ids: ids}}, nil
}

// content reads a message's text: absent, a string, or parts of type text, which are joined by line ends.
func (f *fields) content() (string, *apiError) {
	raw, ok := f.m["content"]
	if !ok {
		return "", nil
	}
	delete(f.m, "content")
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return "", badRequest(f.at+"content", "%scontent must be a string or a list of parts", f.at)
	}
	var texts []string
	for i, m := range parts {
		p := &fields{m: m, at: fmt.Sprintf("%scontent[%d].", f.at, i)}
		p.dropNulls()
		if kind, _ := p.str("type"); kind != "text" {
			return "", badRequest(p.at+"type", "%stype is %.40q; only text is supported", p.at, kind)
		}
		t, ok := p.str("text")
		if !ok {
			p.fail("text", "a string")
		}
		if err := p.end(); err != nil {
			return "", err
		}
		texts = append(texts, t)
	}
	return strings.Join(texts, "\n"), nil
}
