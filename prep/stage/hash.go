package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"neuroprefetcher/format"
)

// settle is how old a file's last change must be for its hash to be remembered: a change within the clock's
// grain would not show in the times.
const settle = 2 * time.Second

// stamp is what must be unchanged for a remembered hash to hold. Every write changes ctime.
type stamp struct {
	Size  int64 `json:"size"`
	Mtime int64 `json:"mtime_ns"`
	Ctime int64 `json:"ctime_ns"`
}

type hashEntry struct {
	stamp
	SHA256 string `json:"sha256"`
	Path   string `json:"path"` // for people
}

// hashCache is Work/hashes.json: "device:inode" → hash. A bundle's members are hard links into the work folder;
// this way they are hashed once.
type hashCache struct {
	mu    sync.Mutex
	files map[string]hashEntry
	dirty bool
}

func stampOf(st os.FileInfo) (id string, s stamp) {
	s = stamp{Size: st.Size(), Mtime: st.ModTime().UnixNano()}
	if x, ok := st.Sys().(*syscall.Stat_t); ok {
		s.Ctime = x.Ctim.Nano()
		id = fmt.Sprintf("%d:%d", x.Dev, x.Ino)
	}
	return id, s
}

func (e *Env) cache() *hashCache {
	if e.hashes == nil {
		e.hashes = &hashCache{files: map[string]hashEntry{}}
		if b, err := format.ReadFile(filepath.Join(e.Work, hashFile), maxRecord); err == nil {
			// a damaged cache is an empty one
			if json.Unmarshal(b, &e.hashes.files) != nil || e.hashes.files == nil {
				e.hashes.files = map[string]hashEntry{}
			}
		}
	}
	return e.hashes
}

// saveHashes keeps the cache for the next run; failing to is no failure of the stage.
func (e *Env) saveHashes() {
	c := e.hashes
	if c == nil || !c.dirty {
		return
	}
	if b, err := json.MarshalIndent(c.files, "", " "); err == nil && writeFile(filepath.Join(e.Work, hashFile), b) == nil {
		c.dirty = false
	}
}

// FileHash is the SHA-256 of a file's content in hex, remembered in Work/hashes.json as long as the file's
// size, times and inode stay as they are.
func (e *Env) FileHash(ctx context.Context, path string) (string, error) {
	return e.fileHash(ctx, path, nil)
}

func (e *Env) fileHash(ctx context.Context, path string, p *Progress) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	c := e.cache()
	st, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", format.Inputf("%s: no such file", path)
	}
	if err != nil {
		return "", format.IOf("%w", err)
	}
	id, before := stampOf(st)
	c.mu.Lock()
	old, ok := c.files[id]
	c.mu.Unlock()
	if ok && old.stamp == before {
		p.Add(st.Size())
		return old.SHA256, nil
	}
	h, err := hashFileContent(ctx, abs, p)
	if err != nil {
		return "", err
	}
	st, err = os.Stat(abs)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	if now, after := stampOf(st); now != id || after != before {
		return "", format.IOf("%s: changed while it was read", path)
	}
	if id != "" && time.Since(time.Unix(0, before.Ctime)) > settle {
		c.mu.Lock()
		c.files[id] = hashEntry{before, h, abs}
		c.dirty = true
		c.mu.Unlock()
	}
	return h, nil
}

// FileHash is the SHA-256 of a file's content, in hex, computed now.
func FileHash(path string) (string, error) {
	return hashFileContent(context.Background(), path, nil)
}

func hashFileContent(ctx context.Context, path string, p *Progress) (string, error) {
	f, _, err := format.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		p.Add(int64(n))
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", format.IOf("%w", err)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
	}
}
