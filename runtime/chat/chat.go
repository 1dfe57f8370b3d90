package chat

import "neuroprefetcher/runtime/tokenizer"

type Message struct{ Role, Content string }

type Template struct{}

func New(template string, bos, eos string) (*Template, error) { panic("being written") }

func (t *Template) Render(msgs []Message, addGenerationPrompt bool) (string, error) { return "", nil }

// RenderSegments renders like Render and says which parts came from the users' text.
func (t *Template) RenderSegments(msgs []Message, addGenerationPrompt bool) ([]tokenizer.Segment, error) {
	return nil, nil
}
