package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/tensors"
)

const (
	indexName  = "model.safetensors.index.json"
	singleName = "model.safetensors"
)

// weights are the open safetensors files of a checkpoint and which tensor is in which.
type weights struct {
	dir    string
	index  map[string]string // tensor → shard; nil without an index file
	shards map[string]*tensors.File
	names  []string // shards, sorted
	stray  []string // safetensors files that do not belong to the model
}

// openWeights finds and opens the files. With an index the index is the list, whatever else lies in the directory;
// without one there must be no doubt which file it is.
func openWeights(dir string) (*weights, error) {
	w := &weights{dir: dir, shards: map[string]*tensors.File{}}
	if err := w.open(); err != nil {
		_ = w.close()
		return nil, err
	}
	return w, nil
}

func (w *weights) open() error {
	dir := w.dir
	present, err := candidates(dir)
	if err != nil {
		return err
	}
	if err := w.readIndex(); err != nil {
		return err
	}
	if w.index != nil {
		for _, s := range w.index {
			w.names = append(w.names, s)
		}
		slices.Sort(w.names)
		w.names = slices.Compact(w.names)
	} else {
		name, err := single(dir, present)
		if err != nil {
			return err
		}
		w.names = []string{name}
	}
	if err := w.checkPresent(); err != nil {
		return err
	}
	for _, name := range w.names {
		f, err := tensors.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		w.shards[name] = f
	}
	for _, name := range present {
		if !slices.Contains(w.names, name) {
			w.stray = append(w.stray, name)
		}
	}
	return w.checkIndex()
}

// candidates lists the safetensors files of the directory, sorted.
func candidates(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, format.IOf("%s: list the directory: %w", dir, err)
	}
	var out []string
	for _, e := range list {
		if strings.HasSuffix(e.Name(), ".safetensors") && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// readIndex reads weight_map if there is an index.
func (w *weights) readIndex() error {
	path := filepath.Join(w.dir, indexName)
	data, err := format.ReadFile(path, format.MaxIndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	o, err := newObject(path, data)
	if err != nil {
		return err
	}
	raw, ok := o.value("weight_map")
	if !ok {
		return format.Inputf("%s: weight_map is missing", path)
	}
	if err := json.Unmarshal(raw, &w.index); err != nil || w.index == nil {
		return format.Inputf("%s: weight_map is not an object of tensor and file names", path)
	}
	if len(w.index) == 0 {
		return format.Inputf("%s: weight_map is empty: it names no tensor", path)
	}
	shards := map[string]bool{}
	for _, name := range sortedKeys(w.index) {
		shard := w.index[name]
		if shard == "" || strings.ContainsAny(shard, "/\\\x00") || !strings.HasSuffix(shard, ".safetensors") {
			return format.Inputf("%s: tensor %q is mapped to %q, which is not the name of a safetensors file in this directory", path, name, shard)
		}
		shards[shard] = true
	}
	if len(shards) > format.MaxShards {
		return format.Inputf("%s: %d shards are more than the %d allowed", path, len(shards), format.MaxShards)
	}
	return nil
}

var shardPattern = regexp.MustCompile(`-(\d{5,})-of-(\d{5,})\.safetensors$`)

// single chooses the only file of a checkpoint without an index.
func single(dir string, present []string) (string, error) {
	if slices.Contains(present, singleName) {
		return singleName, nil // the standard name; what lies beside it is not the model
	}
	var use []string
	for _, name := range present {
		if name != "adapter_model.safetensors" {
			use = append(use, name)
		}
	}
	switch {
	case len(use) == 1 && !shardPattern.MatchString(use[0]):
		return use[0], nil
	case len(use) == 1:
		return "", format.Hint(format.Inputf("%s: %s is one shard of several, but %s is missing", dir, use[0], indexName), "fetch the index and the other shards")
	case len(use) > 1:
		return "", format.Hint(format.Inputf("%s: no %s, and %d files could be the model: %s", dir, indexName, len(use), some(use)),
			"fetch the index, or keep only the model's file")
	case len(present) > 0:
		return "", format.Inputf("%s: holds only %s, an adapter and not a model", dir, present[0])
	}
	hint := "a checkpoint has config.json, tokenizer.json and model.safetensors or shards with an index"
	for pattern, h := range map[string]string{"*.gguf": "convert a GGUF file with npprep import", "pytorch_model*.bin": "convert PyTorch files to safetensors first"} {
		if m, _ := filepath.Glob(filepath.Join(dir, pattern)); len(m) > 0 {
			hint = h
		}
	}
	return "", format.Hint(format.Inputf("%s: no safetensors file", dir), hint)
}

// checkPresent names the shards that the index lists and the directory lacks.
func (w *weights) checkPresent() error {
	var absent []string
	for _, name := range w.names {
		if _, err := os.Stat(filepath.Join(w.dir, name)); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return format.Hint(format.Inputf("%s: %d of %d shards in the index are absent: %s", filepath.Join(w.dir, indexName), len(absent), len(w.names), some(absent)),
		"fetch the missing files")
}

// checkIndex checks that each shard holds what the index says it holds.
func (w *weights) checkIndex() error {
	for _, name := range sortedKeys(w.index) {
		shard := w.index[name]
		if _, ok := w.shards[shard].Info(name); ok || ignorable(name) {
			continue
		}
		where := "no listed shard holds it"
		if s := w.holders(name); len(s) > 0 {
			where = "it is in " + some(s)
		}
		return format.Inputf("%s: tensor %q is mapped to %s, but is not in that file's header; %s", filepath.Join(w.dir, indexName), name, shard, where)
	}
	return nil
}

// holders lists the shards whose header has a tensor.
func (w *weights) holders(name string) []string {
	var out []string
	for _, s := range w.names {
		if _, ok := w.shards[s].Info(name); ok {
			out = append(out, s)
		}
	}
	return out
}

// find says in which file a tensor is. An absent one gives nil without an error; one that the index leaves out although a
// shard has it, or that two shards have, is an error.
func (w *weights) find(name string) (*tensors.File, error) {
	holders := w.holders(name)
	if len(holders) == 0 {
		return nil, nil
	}
	if w.index != nil {
		if _, ok := w.index[name]; !ok {
			return nil, format.Inputf("%s: tensor %q is not in the index, though %s holds it", filepath.Join(w.dir, indexName), name, some(holders))
		}
	}
	if len(holders) > 1 {
		return nil, format.Inputf("%s: tensor %q is in more than one shard: %s", filepath.Join(w.dir, indexName), name, some(holders))
	}
	return w.shards[holders[0]], nil
}

// absent is the error for a needed tensor that find did not find.
func (w *weights) absent(name string) error {
	if w.index != nil {
		return format.Inputf("%s: tensor %q is not in the index at all, and the model needs it", filepath.Join(w.dir, indexName), name)
	}
	return format.Inputf("%s: tensor %q is missing, and the model needs it", filepath.Join(w.dir, w.names[0]), name)
}

func (w *weights) close() error {
	var first error
	for _, name := range w.names {
		if f := w.shards[name]; f != nil {
			if err := f.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// some lists the first names of a list that may be long.
func some(list []string) string {
	const most = 6
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + ", ..."
}
