package assemble

import (
	"path/filepath"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/tokenizer"
)

// CheckTokenizer refuses a tokenizer that nprun would refuse, and with it the whole bundle.
func CheckTokenizer(c *checkpoint.Checkpoint) error {
	_, err := tokenizer.Load(filepath.Join(c.Dir, bundle.MemberTokenizer))
	return err
}

// CheckTemplate says what is wrong with a chat template that nprun cannot run: the bundle works without chat.
func CheckTemplate(c *checkpoint.Checkpoint) error {
	t, err := c.ChatTemplate()
	if err != nil || t == "" {
		return err
	}
	_, err = chat.New(t, "", "")
	return err
}
