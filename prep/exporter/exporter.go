package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/gguf"
)

// version of what Export writes; a file of another one is written anew.
const version = 1

// keySource is the header's key that says what the file was made from.
const keySource = "neuroprefetcher.source"

// Options of an export. The zero value is good.
type Options struct {
	// Progress, if set, is called with bytes of tensor data written and wanted. Calls come from one goroutine.
	Progress func(done, total int64)
}

// Report says what an export did.
type Report struct {
	Path         string `json:"path"`
	Architecture string `json:"architecture"` // the GGUF's: llama, which includes mistral, or qwen2
	Written      bool   `json:"written"`      // by this run; else it was there
	Tensors      int    `json:"tensors"`
	Bytes        int64  `json:"bytes"` // of the file
}

// Export writes the bundle's weights as a GGUF file at path.
func Export(ctx context.Context, b *bundle.Bundle, path string, o Options) (Report, error) {
	e := &exporter{ctx: ctx, b: b, c: &b.Manifest.Model, g: b.Manifest.Rows, progress: o.Progress}
	r := Report{Path: path, Architecture: e.arch()}
	source, err := sourceOf(b)
	if err != nil {
		return r, err
	}
	if err := e.open(); err != nil {
		return r, err
	}
	defer e.close()
	if err := e.plan(); err != nil {
		return r, err
	}
	r.Tensors = len(e.entries)
	if !upToDate(path, source, len(e.entries)) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), bundle.MemberManifest)); err == nil {
			return r, format.Hint(format.Inputf("%s: lies in a bundle, which holds its own files only", path), "choose another --out")
		}
		if err := format.RemoveTemps(path); err != nil {
			return r, err
		}
		if err := gguf.Write(path, append(e.keys(), gguf.Pair{Key: keySource, Value: source}), e.entries); err != nil {
			return r, err
		}
		r.Written = true
	}
	st, err := os.Stat(path)
	if err != nil {
		return r, format.IOf("%w", err)
	}
	r.Bytes = st.Size()
	return r, nil
}

// sourceOf names everything that the file's bytes depend on.
func sourceOf(b *bundle.Bundle) (string, error) {
	rows, _ := b.Manifest.Member(bundle.MemberRows)
	resident, _ := b.Manifest.Member(bundle.MemberResident)
	data, err := json.Marshal([]any{version, b.Manifest.Model, b.Manifest.Rows, rows.SHA256, resident.SHA256})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// upToDate reports whether path holds this export, whole.
func upToDate(path, source string, tensors int) bool {
	f, err := gguf.Open(path) // checks that every tensor lies inside the file
	if err != nil {
		return false
	}
	defer f.Close()
	return f.KV[keySource] == source && len(f.Tensors) == tensors
}
