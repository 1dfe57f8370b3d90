package bundle

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
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// Writer puts a bundle together beside its place and publishes it by one rename:
//
//	w, err := NewWriter(out)      // refuses an out that is anything but absent, empty or a bundle
//	w.Link(...); w.Put(...)       // members
//	w.Publish(ctx, manifest)      // manifest, sync, rename
//
// Close gives everything back that was not published. Until Publish renames, a bundle already at out is as it
// was. One goroutine uses a Writer; after the first error it stays failed.
type Writer struct {
	out     string   // as given, symbolic links resolved
	tmp     string   // sibling of out, a name with a dot
	lock    *os.File // on the directory that is built
	old     *os.File // on the bundle that is replaced, which goes to tmp
	members []Member
	err     error
}

// suffix of the sibling that a bundle is built in. Only its lock tells whether somebody works in it; one left
// by a killed run is emptied by the next.
const buildSuffix = ".building"

// NewWriter takes the place out for this process.
func NewWriter(out string) (*Writer, error) {
	abs, err := place(out)
	if err != nil {
		return nil, err
	}
	restore(abs)
	if err := checkOut(abs); err != nil {
		return nil, err
	}
	parent := filepath.Dir(abs)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, placeError(parent, err)
	}
	w := &Writer{out: abs, tmp: filepath.Join(parent, "."+filepath.Base(abs)+buildSuffix)}
	if err := w.take(); err != nil {
		return nil, err
	}
	return w, nil
}

// place is where out is, symbolic links resolved.
func place(out string) (string, error) {
	abs, err := filepath.Abs(out)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if _, lerr := os.Lstat(abs); lerr == nil {
		return "", format.Inputf("%s: output is a link to nothing", out)
	}
	if filepath.Dir(abs) == abs {
		return "", format.Inputf("%s: cannot be a bundle", out)
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(abs, here); err == nil && filepath.IsLocal(rel) {
			return "", format.Hint(format.Inputf("%s: is the directory this runs in, which publishing would replace", out), "run it from elsewhere, or choose another --out")
		}
	}
	return abs, nil
}

// CheckOut refuses a place that NewWriter would refuse, and changes nothing: for asking before hours of work. Whether
// a bundle that is there could be replaced is not asked, as it may turn out to be up to date.
func CheckOut(out string) error {
	abs, err := place(out)
	if err != nil {
		return err
	}
	if err := checkOut(abs); err != nil {
		return err
	}
	if _, err := os.Stat(abs); err == nil {
		return nil
	}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue // would be made
		}
		if err != nil {
			return placeError(dir, err)
		}
		return nil
	}
}

// placeError is for a place that cannot be written.
func placeError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return spaceError(path, 0, err)
	}
	return format.Hint(format.IOf("%s: cannot be written: %w", path, err), "choose another --out, or make its directory writable")
}

// checkOut refuses to replace what is not a bundle.
func checkOut(out string) error {
	st, err := os.Stat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return placeError(out, err)
	case !st.IsDir():
		return format.Hint(format.Inputf("%s: output is a file; a bundle is a directory", out), "choose another --out")
	}
	ents, err := os.ReadDir(out)
	if err != nil {
		return placeError(out, err)
	}
	if len(ents) == 0 || isBundle(out) {
		return nil
	}
	return format.Hint(format.Inputf("%s: output directory is not empty and not a bundle", out), "choose another --out, or empty the directory")
}

// isBundle looks only for what tells a bundle from anything else, so that a damaged or newer one can be replaced.
func isBundle(dir string) bool {
	b, err := readSmall(filepath.Join(dir, MemberManifest), MaxManifest)
	if err != nil {
		return false
	}
	var m struct {
		Format *struct {
			Reader *int `json:"reader"`
		} `json:"format"`
	}
	return json.Unmarshal(b, &m) == nil && m.Format != nil && m.Format.Reader != nil
}

// take makes and locks the sibling, and empties one that a killed run left.
func (w *Writer) take() error {
	for range 100 {
		if err := os.Mkdir(w.tmp, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return placeError(filepath.Dir(w.tmp), err)
		}
		d, err := os.Open(w.tmp)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner published or removed it meanwhile
		}
		if err != nil {
			return placeError(w.tmp, err)
		}
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			d.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return format.Hint(format.Inputf("%s: another npprep is writing this bundle", w.out), "wait for it, or choose another --out")
			}
			return format.IOf("%s: lock: %w", w.tmp, err)
		}
		// The lock is on the directory, not on its name: it may have been renamed between open and lock.
		a, err1 := d.Stat()
		b, err2 := os.Stat(w.tmp)
		if err1 != nil || err2 != nil || !os.SameFile(a, b) {
			d.Close()
			continue
		}
		w.lock = d
		return w.empty()
	}
	return format.IOf("%s: could not be locked", w.tmp)
}

func (w *Writer) empty() error {
	ents, err := os.ReadDir(w.tmp)
	if err != nil {
		return placeError(w.tmp, err)
	}
	for _, e := range ents {
		if err := os.RemoveAll(filepath.Join(w.tmp, e.Name())); err != nil {
			return placeError(w.tmp, err)
		}
	}
	return nil
}

// Room checks that the members at these paths, as far as they must be copied, and extra bytes fit.
func (w *Writer) Room(extra int64, paths ...string) error {
	need := extra
	var home unix.Stat_t
	if err := unix.Stat(w.tmp, &home); err != nil {
		return w.fail(placeError(w.tmp, err))
	}
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return w.fail(format.IOf("%s: %w", p, err))
		}
		if st.Dev != home.Dev {
			need += st.Size
		}
	}
	if err := format.CheckSpace(w.tmp, need); err != nil {
		return w.fail(fmt.Errorf("%s: %w", w.out, err))
	}
	return nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// Link makes the file at src a member, by a hard link where one file system holds both, else by a copy. Its
// hash is sha256 if the caller knows it (a copy is compared with it), else it is computed. A linked file must
// never be written again in place.
func (w *Writer) Link(ctx context.Context, name, src, sum string, count func(n int)) error {
	if w.err != nil {
		return w.err
	}
	dst := filepath.Join(w.tmp, name)
	st, err := os.Stat(src)
	if err != nil {
		return w.fail(format.IOf("%w", err))
	}
	if !st.Mode().IsRegular() {
		return w.fail(format.Inputf("%s: not a regular file", src))
	}
	linked := os.Link(src, dst) == nil
	if linked {
		// link(2) does not follow a symbolic link at src
		if l, err := os.Lstat(dst); err != nil || !l.Mode().IsRegular() {
			os.Remove(dst)
			linked = false
		}
	}
	switch {
	case !linked:
		got, err := copyFile(ctx, dst, src, st.Size(), count)
		if err != nil {
			return w.fail(err)
		}
		if sum != "" && got != sum {
			return w.fail(format.Corruptf("%s: sha256 %s, expected %s", src, got, sum))
		}
		sum = got
	case sum == "":
		if sum, err = hashOf(ctx, dst, count); err != nil {
			return w.fail(err)
		}
	}
	w.members = append(w.members, Member{Name: name, Size: st.Size(), SHA256: sum, Optional: members[name].optional})
	return nil
}

// Put makes data a member.
func (w *Writer) Put(name string, data []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.write(name, data); err != nil {
		return w.fail(err)
	}
	s := sha256.Sum256(data)
	w.members = append(w.members, Member{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(s[:]), Optional: members[name].optional})
	return nil
}

func (w *Writer) write(name string, data []byte) error {
	return format.WriteFileAtomicSize(filepath.Join(w.tmp, name), int64(len(data)), func(o io.Writer) error {
		_, err := o.Write(data)
		return err
	})
}

// Publish writes the manifest with the members put so far, checks the whole, and puts the bundle in its place.
func (w *Writer) Publish(ctx context.Context, m *Manifest) error {
	if w.err != nil {
		return w.err
	}
	m.Members = w.members
	slices.SortFunc(m.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	data, err := m.Encode()
	if err != nil {
		return w.fail(err)
	}
	if err := format.SyncDir(w.tmp); err != nil {
		return w.fail(err)
	}
	if err := w.write(MemberManifest, data); err != nil {
		return w.fail(err)
	}
	if _, err := Open(w.tmp); err != nil {
		return w.fail(err)
	}
	if err := ctx.Err(); err != nil {
		return w.fail(err)
	}
	if err := checkOut(w.out); err != nil { // it may have changed in the hours since NewWriter
		return w.fail(err)
	}
	if err := w.swap(); err != nil {
		return w.fail(placeError(w.out, err))
	}
	w.err = errors.New("bundle is published")
	err = format.SyncDir(filepath.Dir(w.out))
	// What is at tmp now is the old bundle, locked by swap so that no other writer builds in it, or nothing.
	if rerr := os.RemoveAll(w.tmp); err == nil && rerr != nil {
		err = format.IOf("the old bundle could not be removed: %w", rerr)
	}
	w.unlock()
	return err
}

func (w *Writer) unlock() {
	w.lock.Close()
	w.lock = nil
	if w.old != nil {
		w.old.Close()
		w.old = nil
	}
}

// swap puts tmp at out. Where the kernel can exchange two names there is no moment without a good bundle;
// elsewhere the old one is moved aside for the time of two renames.
func (w *Writer) swap() error {
	err := os.Rename(w.tmp, w.out) // works if out is absent or an empty directory
	if err == nil || !(errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		return err
	}
	if w.old, err = os.Open(w.out); err != nil {
		return err
	}
	if err := unix.Flock(int(w.old.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, w.tmp, unix.AT_FDCWD, w.out, unix.RENAME_EXCHANGE)
	if err == nil || !(errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)) {
		return err
	}
	return w.swapAside()
}

func (w *Writer) swapAside() error {
	old := aside(w.out)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(w.out, old); err != nil {
		return err
	}
	if err := os.Rename(w.tmp, w.out); err != nil {
		return errors.Join(err, os.Rename(old, w.out))
	}
	return os.RemoveAll(old)
}

// aside is where swapAside keeps the old bundle for a moment.
func aside(out string) string {
	return filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".old")
}

// restore puts back an old bundle that swapAside was killed over.
func restore(out string) {
	if _, err := os.Lstat(out); errors.Is(err, fs.ErrNotExist) && isBundle(aside(out)) {
		os.Rename(aside(out), out)
	}
}

// Close removes what was built and not published.
func (w *Writer) Close() error {
	if w.lock == nil {
		return nil
	}
	err := os.RemoveAll(w.tmp) // before the lock is given back
	w.unlock()
	w.fail(errors.New("bundle writer is closed"))
	if err != nil {
		return format.IOf("%w", err)
	}
	return nil
}

// copyFile copies, syncs and hashes.
func copyFile(ctx context.Context, dst, src string, size int64, count func(int)) (string, error) {
	in, err := os.Open(src)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	defer in.Close()
	h := sha256.New()
	err = format.WriteFileAtomicSize(dst, size, func(out io.Writer) error { return pump(ctx, io.MultiWriter(out, h), in, src, count) })
	return hex.EncodeToString(h.Sum(nil)), err
}

func hashOf(ctx context.Context, path string, count func(int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", format.IOf("%w", err)
	}
	defer f.Close()
	h := sha256.New()
	err = pump(ctx, h, f, path, count)
	return hex.EncodeToString(h.Sum(nil)), err
}

// pump is io.Copy that stops when it is told to and knows reading from writing errors.
func pump(ctx context.Context, w io.Writer, r io.Reader, name string, count func(int)) error {
	buf := make([]byte, 1<<20)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if count != nil {
				count(n)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return format.IOf("%s: read: %w", name, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
