package checkpoint

import (
	"errors"

	"neuroprefetcher/format/tensors"
)

// Checkpoint is an open model directory.
type Checkpoint struct {
	Dir      string
	Config   *Config
	Warnings []string
}

func Open(dir string) (*Checkpoint, error) { return nil, errors.New("checkpoint: unfinished") }
func (c *Checkpoint) Close() error         { return nil }
func (c *Checkpoint) Tensor(name string) (tensors.Info, []byte, error) {
	return tensors.Info{}, nil, errors.New("checkpoint: unfinished")
}
func (c *Checkpoint) Release(name string)           {}
func (c *Checkpoint) HeadName() string              { return "" }
func (c *Checkpoint) Files() []string               { return nil }
func (c *Checkpoint) ChatTemplate() (string, error) { return "", nil }
