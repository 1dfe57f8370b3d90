package storage

import "fmt"

// cursor is how far the planning of the front batch has come.
type cursor struct {
	batch *Batch
	item  int
	pos   int // bytes of Items[item] planned already
}

// planner turns items into reads. Pure but for the staging it takes.
type planner struct {
	size      int64 // of the file
	align     int64
	gap       int64
	maxStaged int // longest staged read; a multiple of align
	maxJoined int // up to here further items join a staged read: a share of staging, so that many can be in flight
	maxSplit  int // piece of an item that does not fit maxStaged
	maxDirect int
	stage     *staging
	sink      []byte // where gaps of direct reads go; nobody reads it
}

type planned int

const (
	planRead planned = iota // op filled in
	planFull                // no staging now; nothing changed
	planEnd                 // the batch has no more reads
	planBad                 // the item at the cursor lies outside the file
)

func (p *planner) down(x int64) int64 { return x &^ (p.align - 1) }
func (p *planner) up(x int64) int64   { return (x + p.align - 1) &^ (p.align - 1) }

// end is the end of a widened read: aligned, and no further than the file's last block, as the kernel reads no further either.
func (p *planner) end(x int64) int64 { return min(p.up(x), p.up(p.size)) }

// inside says that the item is a range of the file.
func (p *planner) inside(it *Item) bool {
	return it.Off >= 0 && int64(len(it.Dst)) <= p.size && it.Off <= p.size-int64(len(it.Dst))
}

// plan fills o with the next read of c and moves c past it.
func (p *planner) plan(c *cursor, o *op) planned {
	b := c.batch
	for c.item < len(b.Items) && len(b.Items[c.item].Dst) == 0 {
		b.Done[c.item] = true
		c.item++
	}
	if c.item == len(b.Items) {
		return planEnd
	}
	it := &b.Items[c.item]
	if !p.inside(it) {
		return planBad
	}
	o.batch, o.first, o.last = b, c.item, c.item
	o.from = it.Off + int64(c.pos)
	o.got, o.tries, o.buf, o.iovs = 0, 0, nil, nil
	if n := p.landing(b, it, c.pos); n > 0 {
		p.direct(c, o, n)
		return planRead
	}
	return p.staged(c, o)
}

// landing says how many bytes of the item from pos on can be read straight into Dst; 0 for none.
func (p *planner) landing(b *Batch, it *Item, pos int) int {
	if !b.InPlace {
		return 0
	}
	n := len(it.Dst) - pos
	a := int(p.align)
	if (it.Off+int64(pos))%p.align != 0 || address(it.Dst[pos:])%uintptr(a) != 0 {
		return 0
	}
	if tail := n % a; tail != 0 {
		if n <= p.maxStaged {
			return 0 // one staged read is better than two
		}
		n -= tail
	}
	return min(n, p.maxDirect)
}

// staged plans a read into staging: the item at the cursor, or a piece of it, and those that follow closely.
func (p *planner) staged(c *cursor, o *op) planned {
	b := c.batch
	it := &b.Items[c.item]
	end := it.Off + int64(len(it.Dst))
	lo := p.down(o.from)
	o.to = end
	if p.end(end)-lo > int64(p.maxStaged) {
		o.to = min(end, lo+int64(p.maxSplit))
	}
	hi := p.end(o.to)
	if o.to == end {
		for j := o.last + 1; j < len(b.Items); j++ {
			next := &b.Items[j]
			far := next.Off-o.to > p.gap && p.down(next.Off) >= hi
			if len(next.Dst) == 0 || next.Off < o.to || far || !p.inside(next) || p.landing(b, next, 0) > 0 {
				break
			}
			nextEnd := next.Off + int64(len(next.Dst))
			if p.end(nextEnd)-lo > int64(p.maxJoined) {
				break
			}
			o.last, o.to, hi = j, nextEnd, p.end(nextEnd)
		}
	}
	if o.buf = p.stage.take(int(hi - lo)); o.buf == nil {
		return planFull
	}
	o.off, o.n = lo, len(o.buf)
	o.addIov(o.buf)
	p.advance(c, o)
	return planRead
}

// direct plans a read of n bytes into Dst at the cursor, and into those of the items that follow without a gap or with a small one.
func (p *planner) direct(c *cursor, o *op, n int) {
	b := c.batch
	it := &b.Items[c.item]
	o.off, o.to = o.from, o.from+int64(n)
	o.addIov(it.Dst[c.pos : c.pos+n])
	if o.to == it.Off+int64(len(it.Dst)) {
		for j := o.last + 1; j < len(b.Items); j++ {
			next := &b.Items[j]
			gap := next.Off - o.to
			if gap < 0 || gap > p.gap || gap > int64(len(p.sink)) || len(next.Dst) == 0 || !p.inside(next) ||
				p.landing(b, next, 0) != len(next.Dst) || int(next.Off-o.off)+len(next.Dst) > p.maxDirect ||
				len(o.iovs)+2 > maxIov {
				break
			}
			if gap > 0 {
				o.addIov(p.sink[:gap])
			}
			last := &o.iovs[len(o.iovs)-1]
			if gap == 0 && adjacent(b.Items[j-1].Dst, next.Dst) {
				last.SetLen(int(last.Len) + len(next.Dst))
			} else {
				o.addIov(next.Dst)
			}
			o.last, o.to = j, next.Off+int64(len(next.Dst))
		}
	}
	o.n = int(o.to - o.off)
	p.advance(c, o)
}

// adjacent says that b begins where a ends.
func adjacent(a, b []byte) bool { return address(a)+uintptr(len(a)) == address(b) }

// advance moves the cursor past what o reads, and starts a countdown for an item that takes more than one read.
func (p *planner) advance(c *cursor, o *op) {
	it := &c.batch.Items[o.last]
	if o.to == it.Off+int64(len(it.Dst)) {
		c.item, c.pos = o.last+1, 0
		return
	}
	if c.pos == 0 {
		c.batch.split = append(c.batch.split, split{o.last, len(it.Dst)})
	}
	c.pos = int(o.to - it.Off)
}

// outside describes an item that is no range of the file.
func (p *planner) outside(path string, it *Item) error {
	return fmt.Errorf("read %s at offset %d: %d bytes wanted, the file ends at %d", path, it.Off, len(it.Dst), p.size)
}
