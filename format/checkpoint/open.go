package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
)

// Checkpoint is an open model directory. Its methods may be called from several goroutines, except Close.
type Checkpoint struct {
	Dir      string
	Config   *Config
	Warnings []string // one line each, naming the file

	files           []string // that belong to the model, besides the weights
	tokenizerConfig *object  // while opening; nil if there is none
	template        string
	weights         *weights
	where           map[string]*tensors.File // needed tensor → its file
}

// Open checks a checkpoint completely, from config.json to the shape of each tensor, and loads nothing: what a stage could
// stumble over after hours is refused here.
func Open(dir string) (*Checkpoint, error) {
	c := &Checkpoint{Dir: dir, where: map[string]*tensors.File{}}
	if err := c.open(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Checkpoint) open() error {
	if st, err := os.Stat(c.Dir); err != nil || !st.IsDir() {
		return format.Hint(format.Inputf("%s: not a directory with a checkpoint", c.Dir), "give the folder of a downloaded model; of a GGUF file, npprep import --gguf FILE --out DIR makes one")
	}
	p, err := c.readConfig()
	if err != nil {
		return err
	}
	v, err := readVocabulary(c.Dir)
	if err != nil {
		return err
	}
	c.files = append(c.files, filepath.Join(c.Dir, "tokenizer.json"))
	if c.tokenizerConfig, err = c.optional("tokenizer_config.json"); err != nil {
		return err
	}
	if v.last >= c.Config.Vocab {
		return format.Inputf("%s: token %q has id %d, but %s has only %d rows (vocab_size)",
			filepath.Join(c.Dir, "tokenizer.json"), v.text, v.last, EmbeddingName, c.Config.Vocab)
	}
	if err := c.gatherTokens(p, v); err != nil {
		return err
	}
	if err := c.readTemplate(); err != nil {
		return err
	}
	c.tokenizerConfig = nil // read; it may hold every added token
	c.Warnings = append(c.Warnings, p.warnings...)
	return c.openTensors(p)
}

func (c *Checkpoint) readConfig() (*parsed, error) {
	path := filepath.Join(c.Dir, "config.json")
	data, err := format.ReadFile(path, format.MaxConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, format.Hint(format.Inputf("%s: missing", path), "give the folder of a downloaded model, which has it beside the weights")
	}
	if err != nil {
		return nil, err
	}
	p, err := parseConfig(path, data)
	if err != nil {
		return nil, err
	}
	c.Config = p.config
	c.files = append(c.files, path)
	return p, nil
}

func (c *Checkpoint) openTensors(p *parsed) (err error) {
	if c.weights, err = openWeights(c.Dir); err != nil {
		return err
	}
	if len(c.weights.stray) > 0 {
		c.warn("%s: not part of the model and ignored: %s", c.Dir, some(c.weights.stray))
	}
	if err := c.resolveHead(p); err != nil {
		return err
	}
	if err := c.checkNeeds(); err != nil {
		return err
	}
	if err := c.compareHead(); err != nil {
		return err
	}
	return c.checkExtras()
}

// resolveHead decides whether the head is the embedding: as config.json says; where it does not say, by whether the files
// have a head.
func (c *Checkpoint) resolveHead(p *parsed) error {
	f, err := c.weights.find(LMHeadName)
	switch {
	case p.tied != nil && *p.tied:
		c.Config.Tied = true
	case err != nil:
		return err
	case f != nil:
		c.Config.Tied = false
	case p.tied == nil:
		c.Config.Tied = true
	default:
		return format.Inputf("%s: tie_word_embeddings is false, but the files have no tensor %q", filepath.Join(c.Dir, "config.json"), LMHeadName)
	}
	return nil
}

// compareHead warns of a head that is stored beside a tied embedding and differs from it.
func (c *Checkpoint) compareHead() error {
	holders := c.weights.holders(LMHeadName)
	if !c.Config.Tied || len(holders) == 0 {
		return nil
	}
	f := c.weights.shards[holders[0]]
	head, err := f.Bytes(LMHeadName)
	if err != nil {
		return err
	}
	hi, _ := f.Info(LMHeadName)
	ei, emb, err := c.Tensor(EmbeddingName)
	if err != nil {
		return err
	}
	if hi.DType != ei.DType || !slices.Equal(hi.Shape, ei.Shape) || !bytes.Equal(head, emb) {
		c.warn("%s: tie_word_embeddings is true, but tensor %q differs from the embedding; the embedding is used", f.Path(), LMHeadName)
	}
	f.Release(LMHeadName)
	c.Release(EmbeddingName)
	return nil
}

func (c *Checkpoint) warn(f string, a ...any) { c.Warnings = append(c.Warnings, fmt.Sprintf(f, a...)) }

// Close ends the mappings; bytes that Tensor gave must not be used any more.
func (c *Checkpoint) Close() error {
	if c.weights == nil {
		return nil
	}
	return c.weights.close()
}

// Tensor describes a tensor of the model and gives its bytes as they are in the file: little-endian values of info.DType,
// read-only, at an address that may be odd. Tensors that the model does not use are not found.
func (c *Checkpoint) Tensor(name string) (tensors.Info, []byte, error) {
	f := c.where[name]
	if f == nil {
		return tensors.Info{}, nil, format.Inputf("%s: the model has no tensor %q", c.Dir, name)
	}
	b, err := f.Bytes(name)
	if err != nil {
		return tensors.Info{}, nil, err
	}
	info, _ := f.Info(name)
	return info, b, nil
}

// Release says that a tensor's bytes are not needed for now, so that they do not count as resident.
func (c *Checkpoint) Release(name string) {
	if f := c.where[name]; f != nil {
		f.Release(name)
	}
}

// Path is the file that a tensor of the model is in, or "".
func (c *Checkpoint) Path(name string) string {
	if f := c.where[name]; f != nil {
		return f.Path()
	}
	return ""
}

// HeadName is the tensor that turns the last hidden state into logits.
func (c *Checkpoint) HeadName() string {
	if c.Config.Tied {
		return EmbeddingName
	}
	return LMHeadName
}

// Files lists the paths of every file that belongs to the model, always in the same order.
func (c *Checkpoint) Files() []string {
	out := slices.Clone(c.files)
	if c.weights.index != nil {
		out = append(out, filepath.Join(c.Dir, indexName))
	}
	for _, name := range c.weights.names {
		out = append(out, filepath.Join(c.Dir, name))
	}
	return out
}
