package serve

// chatShape writes /v1/chat/completions.
type chatShape struct {
	s        *Server
	id       string
	created  int64
	logprobs bool
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// chatAnswer is a choice of an answer that is not streamed.
type chatAnswer struct {
	Index   int `json:"index"`
	Message struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	} `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
}

// chatDelta is a choice of a chunk.
type chatDelta struct {
	Index    int           `json:"index"`
	Delta    chatMessage   `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type chatCompletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices any    `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

func (c *chatShape) head(object string, choices any) chatCompletion {
	return chatCompletion{ID: c.id, Object: object, Created: c.created, Model: c.s.o.Model, Choices: choices}
}

func (c *chatShape) whole(j *job) any {
	var list []chatAnswer
	for i := range j.answers {
		a := &j.answers[i]
		x := chatAnswer{Index: i, Finish: a.finish}
		x.Message.Role, x.Message.Content = "assistant", a.text.String()
		if c.logprobs {
			x.Logprobs = newChatLogprobs(c.s.e.Tokenizer, a.tokens)
		}
		list = append(list, x)
	}
	out := c.head("chat.completion", list)
	out.Usage = j.usage()
	return out
}

const chunkObject = "chat.completion.chunk"

func (c *chatShape) begin(choice int) any {
	empty := ""
	return c.head(chunkObject, []chatDelta{{Index: choice, Delta: chatMessage{Role: "assistant", Content: &empty}}})
}

func (c *chatShape) chunk(ev event, j *job) []any {
	d := chatDelta{Index: ev.choice}
	if ev.finish != "" {
		d.Finish = &ev.finish
	} else {
		d.Delta.Content = &ev.text
	}
	if c.logprobs && len(ev.tokens) > 0 {
		d.Logprobs = newChatLogprobs(c.s.e.Tokenizer, ev.tokens)
	}
	return []any{c.head(chunkObject, []chatDelta{d})}
}

func (c *chatShape) counted(u *usage) any {
	out := c.head(chunkObject, []chatDelta{})
	out.Usage = u
	return out
}
