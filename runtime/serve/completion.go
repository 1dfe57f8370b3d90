package serve

// completionShape writes /v1/completions.
type completionShape struct {
	s        *Server
	id       string
	created  int64
	logprobs bool
}

type completionChoice struct {
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

func (c *completionShape) head() completion {
	return completion{ID: c.id, Object: "text_completion", Created: c.created, Model: c.s.o.Model, Choices: []completionChoice{}}
}

func (c *completionShape) whole(j *job) any {
	out := c.head()
	for i := range j.answers {
		a := &j.answers[i]
		ch := completionChoice{Text: a.text.String(), Index: i, Finish: &a.finish}
		if c.logprobs {
			ch.Logprobs = newCompletionLogprobs(c.s.e.Tokenizer, a.tokens)
		}
		out.Choices = append(out.Choices, ch)
	}
	out.Usage = j.usage()
	return out
}

func (c *completionShape) begin(int) any { return nil }

func (c *completionShape) chunk(ev event, j *job) []any {
	out := c.head()
	ch := completionChoice{Text: ev.text, Index: ev.choice}
	if ev.finish != "" {
		ch.Finish = &ev.finish
	}
	if c.logprobs && len(ev.tokens) > 0 {
		ch.Logprobs = newCompletionLogprobs(c.s.e.Tokenizer, ev.tokens)
	}
	out.Choices = append(out.Choices, ch)
	return []any{out}
}

func (c *completionShape) counted(u *usage) any {
	out := c.head()
	out.Usage = u
	return out
}
