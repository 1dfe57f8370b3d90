package bundle

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"neuroprefetcher/format"
)

// Describe writes what a bundle is, a fact a line.
func Describe(w io.Writer, b *Bundle) error {
	m, g := b.Manifest, b.Manifest.Rows
	p := &printer{w: w}
	p.f("format     reader %d, writer %d, written by %s\n", m.Format.Reader, m.Format.Writer, m.Tool)
	c := m.Model
	p.f("model      %s: %d layers, hidden %d, intermediate %d, heads %d/%d of %d, vocabulary %d, positions %d\n",
		c.ModelType, c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab, c.MaxPositions)
	where := "checksums in " + MemberRowsCRC
	if g.Trailer {
		where = "checksums in trailers"
	}
	p.f("records    %s, %d × %d, row bytes %d, stride %d, align %d, %s\n", g.DType, g.Layers, g.Neurons, g.RowBytes, g.Stride, g.Align, where)
	if s := m.Sparse; s != nil {
		p.f("sparse     k_max %d of %d (sparsity %.3f), selectors %s, default dense prefix %d\n", s.KMax, g.Neurons, s.Sparsity, strings.Join(s.Selectors, ", "), s.DefaultDense)
		p.f("centroids  %d, token density %.3f, centroid density %.3f, mean intersection %.1f neurons, predictor width %d\n",
			s.Centroids, s.TokenDensity, s.CentroidDensity, s.MeanIntersection, s.PredictorDim)
		if s.LookaheadRank > 0 {
			p.f("lookahead  %v layers ahead, rank %d\n", s.LookaheadLayers, s.LookaheadRank)
		}
		for _, name := range s.Selectors {
			p.f("selector   %-10s %s\n", name, m.SelectorSize(name))
		}
		for _, q := range s.Quality {
			p.f("quality    %s\n", q)
		}
	} else {
		p.f("sparse     no: modes resident and stream only\n")
	}
	var total int64
	for _, x := range m.Members {
		total += x.Size
		p.f("member     %-24s %12s  sha256 %s\n", x.Name, format.IEC(x.Size), x.SHA256)
	}
	p.f("total      %s in %d members\n", format.IEC(total), len(m.Members))
	for _, s := range m.Sources {
		p.f("source     %-24s %12s  sha256 %s\n", s.Name, format.IEC(s.Size), s.SHA256)
	}
	for _, k := range sortedKeys(m.Params) {
		p.f("parameter  %s = %s\n", k, m.Params[k])
	}
	return p.err
}

// String is a line for people.
func (q Quality) String() string {
	limit := "reads not limited"
	if q.ReadCap > 0 {
		limit = fmt.Sprintf("at most %d rows a layer", q.ReadCap)
	}
	text := "calibration text that nothing was fitted to"
	if q.Seen {
		text = "the text that it was fitted to"
	}
	return fmt.Sprintf("%-10s perplexity ×%.3f ± %.3f, %.1f %% of tokens as exact, reuse %.2f, %s a token, %s (%d tokens of %s)",
		q.Selector, q.Ratio, q.StdErr, 100*q.Agreement, q.Reuse, format.IEC(int64(q.BytesPerToken)), limit, q.Tokens, text)
}

// SelectorSize tells what a selector's own members weigh and what share of the model's float16 weights that is. The
// centroids file, which all but lookahead read from, has the tables of several selectors and is told apart.
func (m *Manifest) SelectorSize(selector string) string {
	var own, tables int64
	for _, name := range SelectorMembers(selector) {
		x, ok := m.Member(name)
		switch {
		case !ok:
		case name == MemberCentroids:
			tables = x.Size
		default:
			own += x.Size
		}
	}
	share := func(n int64) string {
		return fmt.Sprintf("%s = %.2f %% of the model's weights", format.IEC(n), 100*float64(n)/float64(2*m.Model.Params()))
	}
	switch {
	case tables == 0:
		return share(own)
	case own == 0:
		return "tables " + share(tables)
	}
	return share(own) + ", tables " + share(tables)
}

// DescribeBytes writes the annotated bytes of rows.np: the header page, then for each layer its first and last
// record, rows shortened, and what their checksums say. It is for damaged files too: a field that is wrong is
// shown as it is, with the complaint at the end.
func DescribeBytes(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return format.Inputf("%w", err)
	}
	defer f.Close()
	p := &printer{w: w}
	page := make([]byte, HeaderSize)
	n, err := io.ReadFull(f, page)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return format.IOf("%s: %w", path, err)
	}
	p.f("# %s: header page\n", path)
	p.fields(page[:n], 0, headerFields)
	h, err := DecodeHeader(path, page[:n])
	if err != nil {
		p.f("# %v\n", err)
		return p.err
	}
	g := h.Geometry
	rec := make([]byte, g.Stride)
	for l := range g.Layers {
		for i, neuron := range []int{0, g.Neurons - 1} {
			if i == 1 && g.Neurons == 1 {
				break
			}
			p.record(f, g, l, neuron, rec)
		}
	}
	return p.err
}

// DescribeRecord writes the annotated bytes of one record.
func DescribeRecord(w io.Writer, path string, g Geometry, layer, neuron int) error {
	if layer < 0 || layer >= g.Layers || neuron < 0 || neuron >= g.Neurons {
		return format.Inputf("%s: no record of layer %d, neuron %d (%d layers of %d)", path, layer, neuron, g.Layers, g.Neurons)
	}
	f, err := os.Open(path)
	if err != nil {
		return format.Inputf("%w", err)
	}
	defer f.Close()
	p := &printer{w: w}
	p.record(f, g, layer, neuron, make([]byte, g.Stride))
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(s string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, s, a...)
	}
}

// span writes one line: first–last size name hex, shortened.
func (p *printer) span(b []byte, base int64, off, size int, name string) {
	if off >= len(b) {
		p.f("%08x  %5d  %-16s (behind the end of the file)\n", base+int64(off), size, name)
		return
	}
	v := b[off:min(off+size, len(b))]
	note := ""
	if len(v) <= 8 && name != "magic" && name != "reserved" {
		var x uint64
		for i := len(v) - 1; i >= 0; i-- {
			x = x<<8 | uint64(v[i])
		}
		note = fmt.Sprintf("  # %d", x)
	}
	if name == "magic" {
		note = fmt.Sprintf("  # %q", v)
	}
	if len(v) > 8 && nonZero(v) < 0 {
		p.f("%08x  %5d  %-16s 00 × %d\n", base+int64(off), size, name, len(v))
		return
	}
	hex := fmt.Sprintf("%x", v[:min(len(v), 8)])
	if len(v) > 8 {
		hex += "…"
	}
	p.f("%08x  %5d  %-16s %s%s\n", base+int64(off), size, name, hex, note)
}

func (p *printer) fields(b []byte, base int64, fs []field) {
	for _, f := range fs {
		p.span(b, base, f.off, f.size, f.name)
	}
}

func (p *printer) record(f io.ReaderAt, g Geometry, layer, neuron int, rec []byte) {
	off := g.RecordOffset(layer, neuron)
	p.f("# layer %d, neuron %d\n", layer, neuron)
	n, err := f.ReadAt(rec, off)
	if err != nil && n < len(rec) {
		p.f("# offset %d: %v\n", off, err)
		return
	}
	row := 2 * g.Hidden
	p.span(rec, off, 0, row, "gate row")
	p.span(rec, off, row, row, "up row")
	p.span(rec, off, 2*row, row, "down column")
	end := g.Stride
	if g.Trailer {
		end -= TrailerSize
	}
	if end > g.RowBytes {
		p.span(rec, off, g.RowBytes, end-g.RowBytes, "padding")
	}
	if g.Trailer {
		p.fields(rec[end:], off+int64(end), trailerFields)
	}
	if err := CheckRecord(g, layer, neuron, rec); err != nil {
		p.f("# damaged: %v\n", err)
	}
}

func sortedKeys(m map[string]string) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
