package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
)

// Bundle is an opened bundle: its manifest was checked and its members are there, with the right sizes. It
// holds no file open.
type Bundle struct {
	Dir      string
	Manifest *Manifest
}

// makeOne is what to do where there is no bundle.
const makeOne = "npprep prepare --model CHECKPOINT --text FILE --out BUNDLE makes one, of a GGUF file after npprep import"

// Open checks a bundle as far as that is cheap: the manifest, the presence and size of every member, the
// header page of the rows and the JSON files. Verify reads everything.
func Open(dir string) (*Bundle, error) {
	if st, err := os.Stat(dir); err != nil {
		return nil, format.Hint(format.Inputf("%s: no such bundle", dir), makeOne)
	} else if !st.IsDir() {
		return nil, format.Hint(format.Inputf("%s: a bundle is a directory, this is a file", dir), makeOne)
	}
	path := filepath.Join(dir, MemberManifest)
	data, err := readSmall(path, MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, format.Hint(format.Inputf("%s: no %s: not a bundle, or one whose making was interrupted", dir, MemberManifest), makeOne)
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(path, data)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Dir: dir, Manifest: m}
	for _, x := range m.Members {
		st, err := os.Stat(b.Path(x.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, format.Corruptf("%s: member is missing", b.Path(x.Name))
		case err != nil:
			return nil, format.IOf("%s: %w", b.Path(x.Name), err)
		case !st.Mode().IsRegular():
			return nil, format.Corruptf("%s: member is not a regular file", b.Path(x.Name))
		case st.Size() != x.Size:
			return nil, format.Corruptf("%s: %d bytes, the manifest says %d", b.Path(x.Name), st.Size(), x.Size)
		}
	}
	if err := b.checkHeader(); err != nil {
		return nil, err
	}
	for name, limit := range map[string]int64{MemberConfig: MaxConfig, MemberTokenizer: MaxTokenizer} {
		data, err := readSmall(b.Path(name), limit)
		if err != nil {
			return nil, err
		}
		if !json.Valid(data) {
			return nil, format.Corruptf("%s: not valid JSON", b.Path(name))
		}
	}
	return b, nil
}

// Path is where a member lies.
func (b *Bundle) Path(member string) string { return filepath.Join(b.Dir, member) }

// In names the bundle in an error of CheckRecord or CheckRecordCRC, which know the member only; nil stays nil.
func (b *Bundle) In(err error) error {
	if err == nil {
		return nil
	}
	return format.Hint(fmt.Errorf("%s%c%w", b.Dir, filepath.Separator, err), repair)
}

// repair is what to do about a damaged bundle.
const repair = "prepare the bundle again or copy it anew"

// Has reports whether the bundle holds a member.
func (b *Bundle) Has(member string) bool {
	_, ok := b.Manifest.Member(member)
	return ok
}

// checkHeader holds the header page of the rows against the manifest.
func (b *Bundle) checkHeader() error {
	name := b.Path(MemberRows)
	f, err := os.Open(name)
	if err != nil {
		return format.IOf("%w", err)
	}
	defer f.Close()
	page := make([]byte, HeaderSize)
	if _, err := io.ReadFull(f, page); err != nil {
		return format.IOf("%s: header page: %w", name, err)
	}
	h, err := DecodeHeader(name, page)
	if err != nil {
		return err
	}
	if h.Geometry != b.Manifest.Rows {
		return format.Corruptf("%s: header page: geometry differs from the manifest's", name)
	}
	return nil
}

// readSmall reads a file that may not be longer than limit. A missing file is fs.ErrNotExist.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, format.IOf("%w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, format.IOf("%s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, format.Corruptf("%s: longer than the limit of %d bytes", path, limit)
	}
	return data, nil
}

// Verify reads every byte of the bundle and compares every checksum. progress, if not nil, is told bytes done
// and in all, from several goroutines. The error names member, layer, neuron and offset of the first damage.
func (b *Bundle) Verify(ctx context.Context, progress func(done, total int64)) error {
	return verify(ctx, b, progress)
}
