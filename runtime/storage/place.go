package storage

import (
	"syscall"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// maxTries bounds repeats of a read that the kernel calls transient.
const maxTries = 100

// finish takes the end of a read. It returns true when the op is to be started again for what is left.
func (r *Reader) finish(o *op, res int32) (again bool) {
	if res < 0 {
		e := syscall.Errno(-res)
		if transient(e) && o.tries < maxTries {
			o.tries++
			return true
		}
		r.place(o, o.got)
		r.fail(o.batch, max(o.from, o.pos()), format.IOf("read %s at offset %d (%d bytes): %w", r.file.path, o.pos(), o.left(), e))
		return false
	}
	r.stats.reads.Add(1)
	r.stats.bytes.Add(int64(o.left()))
	have := o.got + int(res)
	if o.off+int64(have) >= o.to {
		r.place(o, have)
		return false
	}
	// Short. Go on from the last whole block; if that is no further than before, the file ends here.
	if whole := int(r.plan.down(int64(have))); whole > o.got {
		o.consume(whole - o.got)
		return true
	}
	r.place(o, have)
	at := max(o.from, o.off+int64(have))
	r.fail(o.batch, at, format.IOf("read %s at offset %d: the file ends at %d: %w", r.file.path, at, o.off+int64(have), unix.EIO))
	return false
}

// consume notes that n more bytes have arrived and moves the memory to fill past them.
func (o *op) consume(n int) {
	o.got += n
	for n > 0 {
		v := &o.iovs[0]
		if k := int(v.Len); k <= n {
			n -= k
			o.iovs = o.iovs[1:]
			continue
		}
		b := iovBytes(v)
		v.Base = &b[n]
		v.SetLen(len(b) - n)
		n = 0
	}
}

// place copies the items that lie in the first have bytes of the read to where they belong and marks them done.
func (r *Reader) place(o *op, have int) {
	b := o.batch
	limit := o.off + int64(have)
	for i := o.first; i <= o.last; i++ {
		it := &b.Items[i]
		from, to := max(o.from, it.Off), min(o.to, it.Off+int64(len(it.Dst)))
		if to > limit {
			break // ascending: the rest lies further on
		}
		if o.buf != nil {
			copy(it.Dst[from-it.Off:to-it.Off], o.buf[from-o.off:])
		}
		if n := int(to - from); n == len(it.Dst) || b.countdown(i, n) {
			b.Done[i] = true
			r.stats.wanted.Add(int64(len(it.Dst)))
		}
	}
}

// countdown notes n more bytes of a split item; true when it is whole.
func (b *Batch) countdown(item, n int) bool {
	for k := len(b.split) - 1; k >= 0; k-- {
		if s := &b.split[k]; s.item == item {
			s.left -= n
			return s.left == 0
		}
	}
	return false
}

// fail notes an error; the one at the lowest offset stays. The batch starts no more reads.
func (r *Reader) fail(b *Batch, off int64, err error) {
	if b.Err == nil || off < b.failedOff {
		b.Err, b.failedOff = err, off
	}
	if r.cursor.batch == b {
		r.cursor.item = len(b.Items)
	}
}
