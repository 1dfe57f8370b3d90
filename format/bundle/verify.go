package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"neuroprefetcher/format"
)

// verify reads every member once. Members are checked beside each other, rows.np by two goroutines: one hashes
// the file, one checks records and layers.
func verify(ctx context.Context, b *Bundle, progress func(done, total int64)) error {
	var total int64
	for _, m := range b.Manifest.Members {
		total += m.Size
	}
	var done atomic.Int64
	count := func(n int) {
		d := done.Add(int64(n))
		if progress != nil {
			progress(d, total)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(b.Manifest.Members))
	slots := make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for i, m := range b.Manifest.Members {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if m.Name == MemberRows {
				errs[i] = b.verifyRows(ctx, m, count)
			} else {
				errs[i] = b.verifyMember(ctx, m, count)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	// the most telling first: rows name the place of the damage
	for i, m := range b.Manifest.Members {
		if m.Name == MemberRows && errs[i] != nil {
			return errs[i]
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// VerifyMember reads one member whole and compares its checksum.
func (b *Bundle) VerifyMember(ctx context.Context, name string) error {
	m, ok := b.Manifest.Member(name)
	if !ok {
		return format.Corruptf("%s: member %q is missing", b.Dir, name)
	}
	return b.verifyMember(ctx, m, func(int) {})
}

func (b *Bundle) verifyMember(ctx context.Context, m Member, count func(int)) error {
	path := b.Path(m.Name)
	f, err := os.Open(path)
	if err != nil {
		return format.IOf("%w", err)
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var size int64
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		count(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return format.IOf("%s: offset %d: %w", path, size, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return sumError(path, h, m)
}

func sumError(path string, h hash.Hash, m Member) error {
	if got := hex.EncodeToString(h.Sum(nil)); got != m.SHA256 {
		return format.Hint(format.Corruptf("%s: member is damaged: sha256 %s, the manifest says %s", path, got, m.SHA256), repair)
	}
	return nil
}

// rowsCheck is the state of one pass over rows.np. Only the checking goroutine touches it.
type rowsCheck struct {
	b       *Bundle
	side    []byte // rows.crc; nil with trailers
	crc     uint32 // of the layer's record checksums so far
	first   error  // the first damage
	damaged int    // places
	inLayer int    // damaged records of this layer
}

func (c *rowsCheck) damage(err error) {
	if c.first == nil {
		c.first = err
	}
	c.damaged++
}

// chunk checks a piece of a layer.
func (c *rowsCheck) chunk(layer int, off int64, first, n int, b []byte) {
	g := c.b.Manifest.Rows
	for i := range n {
		rec := b[i*g.Stride:][:g.Stride]
		var err error
		var crc uint32
		if g.Trailer {
			crc = recordCRC(g, rec)
			err = CheckRecord(g, layer, first+i, rec)
		} else {
			crc = binary.LittleEndian.Uint32(c.side[(layer*g.Neurons+first+i)*4:])
			err = CheckRecordCRC(g, layer, first+i, rec, crc)
		}
		c.crc = addCRC(c.crc, crc)
		end := g.Stride
		if g.Trailer {
			end -= TrailerSize
		}
		if err == nil {
			if j := nonZero(rec[g.RowBytes:end]); j >= 0 {
				err = damagef(g, layer, first+i, "padding byte at offset %d is not zero", g.RecordOffset(layer, first+i)+int64(g.RowBytes+j))
			}
		}
		if err != nil {
			c.damage(c.b.In(err))
			c.inLayer++
		}
	}
	if n == 0 {
		if j := nonZero(b); j >= 0 {
			c.damage(format.Corruptf("%s: layer %d, offset %d: padding behind the records is not zero", c.b.Path(MemberRows), layer, off+int64(j)))
			c.inLayer++
		}
	}
}

// endLayer compares the layer. One whose records are all good but whose checksum is not is made of other records
// than the manifest's.
func (c *rowsCheck) endLayer(layer int) {
	if want := c.b.Manifest.LayerCRC[layer]; c.crc != want && c.inLayer == 0 {
		c.damage(format.Corruptf("%s: layer %d, offset %d: layer checksum %#08x, the manifest says %#08x", c.b.Path(MemberRows), layer, c.b.Manifest.Rows.LayerOffset(layer), c.crc, want))
	}
	c.crc, c.inLayer = 0, 0
}

func nonZero(b []byte) int {
	return slices.IndexFunc(b, func(x byte) bool { return x != 0 })
}

// verifyRows reads rows.np once, in order.
func (b *Bundle) verifyRows(ctx context.Context, m Member, count func(int)) error {
	path, g := b.Path(MemberRows), b.Manifest.Rows
	f, err := os.Open(path)
	if err != nil {
		return format.IOf("%w", err)
	}
	defer f.Close()
	c := &rowsCheck{b: b}
	if !g.Trailer {
		// its size was held against the geometry by Open
		if c.side, err = readSmall(b.Path(MemberRowsCRC), int64(g.Layers)*int64(g.Neurons)*4); err != nil {
			return err
		}
	}

	// Two buffers go round: filled here, hashed there, given back.
	full, free := make(chan []byte, 1), make(chan []byte, 2)
	free <- nil
	free <- nil
	h := sha256.New()
	var hashed sync.WaitGroup
	hashed.Go(func() {
		for p := range full {
			h.Write(p)
			free <- p
		}
	})
	read := func(off int64, n int) ([]byte, error) {
		buf := <-free
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := f.ReadAt(buf, off); err != nil {
			free <- buf
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, format.IOf("%s: offset %d: read: %w", path, off, err)
		}
		count(n)
		return buf, ctx.Err()
	}
	walk := func() error {
		page, err := read(0, int(g.DataOffset))
		if err != nil {
			return err
		}
		if hd, err := DecodeHeader(path, page); err != nil {
			c.damage(err)
		} else if hd.Geometry != g {
			c.damage(format.Corruptf("%s: header page: geometry differs from the manifest's", path))
		} else if j := nonZero(page[HeaderSize:]); j >= 0 {
			c.damage(format.Corruptf("%s: offset %d: padding behind the header page is not zero", path, HeaderSize+j))
		}
		full <- page
		for l := range g.Layers {
			err := eachPiece(g, l, func(off int64, first, n, size int) error {
				buf, err := read(off, size)
				if err != nil {
					return err
				}
				// hashing the piece before overlaps with checking this one
				c.chunk(l, off, first, n, buf)
				full <- buf
				return nil
			})
			if err != nil {
				return err
			}
			c.endLayer(l)
		}
		return nil
	}
	err = walk()
	close(full)
	hashed.Wait()
	if err != nil {
		return err
	}
	if c.first == nil {
		return sumError(path, h, m)
	}
	err = c.first
	if c.damaged > 1 {
		err = fmt.Errorf("%w (and %d more damaged places)", err, c.damaged-1)
	}
	return format.Hint(err, repair)
}
