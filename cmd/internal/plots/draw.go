package plots

import (
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is Okabe and Ito's, the strongest on white first.
var palette = []color.Color{
	rgb(0x00, 0x72, 0xb2), rgb(0xd5, 0x5e, 0x00), rgb(0x00, 0x9e, 0x73), rgb(0xcc, 0x79, 0xa7),
	rgb(0xe6, 0x9f, 0x00), rgb(0x56, 0xb4, 0xe9), rgb(0x00, 0x00, 0x00), rgb(0xf0, 0xe4, 0x42),
}

var (
	ink   = rgb(0x22, 0x22, 0x22)
	faint = rgb(0x66, 0x66, 0x66)
	grid  = rgb(0xe3, 0xe3, 0xe3)
	shade = []color.Color{rgb(0xf2, 0xf4, 0xf7), rgb(0xfb, 0xf3, 0xe7)}
)

func rgb(r, g, b uint8) color.Color { return color.NRGBA{r, g, b, 255} }

// dashes and shapes tell lines apart without colour.
var (
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}, {10, 4}, {4, 2, 1, 2, 1, 2}}
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{}, draw.RingGlyph{}, draw.CrossGlyph{}, draw.SquareGlyph{}, draw.PlusGlyph{}}
)

type diamond struct{}

func (diamond) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, pt vg.Point) {
	r := sty.Radius * 1.2
	c.FillPolygon(sty.Color, []vg.Point{{X: pt.X, Y: pt.Y + r}, {X: pt.X + r, Y: pt.Y}, {X: pt.X, Y: pt.Y - r}, {X: pt.X - r, Y: pt.Y}})
}

const (
	margin     = 8 * vg.Length(1)
	titleSize  = 13 * vg.Length(1)
	labelSize  = 10.5 * vg.Length(1)
	noteSize   = 9 * vg.Length(1)
	glyphWidth = 3 * vg.Length(1)
)

// painter draws one figure.
type painter struct {
	draw.Canvas
	f    *Figure
	text text.Handler
	x, y scale
	area vg.Rectangle // between the axes
	used []vg.Rectangle
}

// paint draws f on a canvas.
func paint(c draw.Canvas, f Figure) error {
	if err := f.check(); err != nil {
		return err
	}
	h, err := handler()
	if err != nil {
		return err
	}
	p := &painter{Canvas: c, f: &f, text: h}
	p.FillPolygon(rgb(255, 255, 255), rect(c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)) // dark text on a dark page is none
	p.scales()
	top := p.head()
	p.axes(top)
	p.bands()
	p.grid()
	p.marks()
	switch f.Kind {
	case Lines:
		p.lines()
	case Scatter:
		p.scatter()
	default:
		p.barChart()
	}
	p.frame()
	return nil
}

// scales finds the ranges.
func (p *painter) scales() {
	f := p.f
	xlo, xhi, ylo, yhi := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	see := func(lo, hi *float64, v float64) {
		if !math.IsNaN(v) {
			*lo, *hi = min(*lo, v), max(*hi, v)
		}
	}
	sums := make([]float64, len(f.Categories))
	for _, s := range f.Series {
		for i, y := range s.Y {
			if f.bars() {
				see(&xlo, &xhi, float64(i))
			} else if math.IsNaN(s.X[i]) {
				continue
			} else {
				see(&xlo, &xhi, s.X[i])
			}
			e := 0.0
			if s.Err != nil && !math.IsNaN(s.Err[i]) {
				e = s.Err[i]
			}
			if f.Kind == Stacked {
				if !math.IsNaN(y) {
					sums[i] += y
				}
				see(&ylo, &yhi, sums[i])
				continue
			}
			if !(f.Y.Log && y-e <= 0) {
				see(&ylo, &yhi, y-e)
			}
			see(&ylo, &yhi, y)
			see(&ylo, &yhi, y+e)
		}
	}
	for _, m := range f.Marks {
		if m.Horizontal {
			see(&ylo, &yhi, m.At)
		} else {
			see(&xlo, &xhi, m.At)
		}
	}
	if f.bars() && f.Values {
		yhi += 0.06 * (yhi - min(ylo, 0)) // room for the numbers
	}
	if len(f.Bands) > 0 && !f.Y.Log {
		yhi += 0.12 * (yhi - min(ylo, 0)) // room for their names
	}
	p.y = newScale(f.Y, ylo, yhi, !f.Y.Free || f.bars(), 7)
	if f.bars() {
		n := float64(len(f.Categories))
		p.x = scale{lo: -0.5, hi: n - 0.5}
		for i, c := range f.Categories {
			p.x.ticks = append(p.x.ticks, Tick{float64(i), c})
		}
	} else {
		p.x = newScale(f.X, xlo, xhi, false, 9)
	}
}

func (p *painter) style(size vg.Length, c color.Color, x, y float64) text.Style {
	return text.Style{Color: c, Font: font.From(sans, size), XAlign: text.XAlignment(x), YAlign: text.YAlignment(y), Handler: p.text}
}

// write puts text at a place; x and y say which part of it lies there: 0 left or bottom, −0.5 the middle, −1 right or top.
func (p *painter) write(size vg.Length, c color.Color, at vg.Point, x, y float64, s string) {
	if y == -0.5 {
		at.Y++ // what has no descenders looks too low
	}
	p.FillText(p.style(size, c, x, y), at, s)
}

func (p *painter) width(size vg.Length, s string) vg.Length { return p.style(size, ink, 0, 0).Width(s) }

// head writes title, note and legend and returns where they end.
func (p *painter) head() vg.Length {
	y := p.Max.Y - margin
	if p.f.Title != "" {
		p.write(titleSize, ink, vg.Point{X: p.Min.X + margin, Y: y}, 0, -1, p.f.Title)
		y -= titleSize + 5
	}
	if p.f.Note != "" {
		for _, line := range p.wrap(noteSize, p.f.Note, p.Max.X-p.Min.X-2*margin) {
			p.write(noteSize, faint, vg.Point{X: p.Min.X + margin, Y: y}, 0, -1, line)
			y -= noteSize + 3
		}
	}
	named := 0
	for _, s := range p.f.Series {
		if s.Name != "" {
			named++
		}
	}
	if named == 0 || named == 1 && len(p.f.Series) == 1 && p.f.Title != "" && p.f.Kind != Scatter && p.f.Series[0].Name == p.f.Y.Label {
		return y - 4
	}
	y -= 4
	x := p.Min.X + margin
	const swatch, between = 24 * vg.Length(1), 14 * vg.Length(1)
	for i, s := range p.f.Series {
		if s.Name == "" {
			continue
		}
		w := swatch + 4 + p.width(labelSize, s.Name)
		if x > p.Min.X+margin && x+w > p.Max.X-margin {
			x, y = p.Min.X+margin, y-labelSize-5
		}
		mid := y - labelSize/2 - 1
		switch {
		case p.f.bars():
			p.FillPolygon(colour(i), rect(x+6, mid-4, x+swatch-2, mid+4))
		case p.f.Kind == Lines:
			p.StrokeLine2(lineStyle(i), x, mid, x+swatch, mid)
			fallthrough
		default:
			p.DrawGlyphNoClip(glyph(i), vg.Point{X: x + swatch/2, Y: mid})
		}
		p.write(labelSize, ink, vg.Point{X: x + swatch + 4, Y: mid}, 0, -0.5, s.Name)
		x += w + between
	}
	return y - labelSize - 8
}

func colour(i int) color.Color { return palette[i%len(palette)] }
func lineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: colour(i), Width: 1.8, Dashes: dashes[i%len(dashes)]}
}
func glyph(i int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: colour(i), Radius: glyphWidth, Shape: shapes[i%len(shapes)]}
}

func rect(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// wrap breaks s at spaces into lines no wider than w.
func (p *painter) wrap(size vg.Length, s string, w vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && p.width(size, line+" "+word) > w {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func title(a Axis) string {
	if a.Unit != "" {
		return strings.TrimSpace(a.Label + " (" + a.Unit + ")")
	}
	return a.Label
}

// axes fixes the area between the axes and writes their labels.
func (p *painter) axes(top vg.Length) {
	left, bottom := p.Min.X+margin, p.Min.Y+margin
	if s := title(p.f.Y); s != "" {
		left += labelSize + 5
	}
	widest := vg.Length(0)
	for _, t := range p.y.ticks {
		widest = max(widest, p.width(labelSize, t.Label))
	}
	p.area.Min.X, p.area.Max.X = left+widest+5, p.Max.X-margin-6
	if s := title(p.f.X); s != "" {
		bottom += labelSize + 5
	}
	names, lines := make([][]string, len(p.x.ticks)), 1
	for i, t := range p.x.ticks {
		names[i] = []string{t.Label}
		if p.f.bars() {
			names[i] = p.wrap(labelSize, t.Label, (p.area.Max.X-p.area.Min.X)/vg.Length(len(p.x.ticks))-4)
			lines = max(lines, len(names[i]))
		}
	}
	p.area.Min.Y, p.area.Max.Y = bottom+vg.Length(lines)*(labelSize+1)+5, top-4
	if s := title(p.f.X); s != "" {
		p.write(labelSize, ink, vg.Point{X: (p.area.Min.X + p.area.Max.X) / 2, Y: p.Min.Y + margin}, -0.5, 0, s)
	}
	if s := title(p.f.Y); s != "" {
		sty := p.style(labelSize, ink, -0.5, -1)
		sty.Rotation = math.Pi / 2
		p.FillText(sty, vg.Point{X: p.Min.X + margin, Y: (p.area.Min.Y + p.area.Max.Y) / 2}, s)
	}
	for _, t := range p.y.ticks {
		if y := p.placeY(t.At); y >= p.area.Min.Y-1 && y <= p.area.Max.Y+1 {
			p.write(labelSize, ink, vg.Point{X: p.area.Min.X - 5, Y: y}, -1, -0.5, t.Label)
		}
	}
	end := p.area.Min.X - 1e3
	for i, t := range p.x.ticks {
		x := p.placeX(t.At)
		half := p.width(labelSize, names[i][0]) / 2
		if x < p.area.Min.X-1 || x > p.area.Max.X+1 || !p.f.bars() && x-half < end+6 {
			continue // no room beside the label before
		}
		end = x + half
		for k, line := range names[i] {
			p.write(labelSize, ink, vg.Point{X: x, Y: p.area.Min.Y - 5 - vg.Length(k)*(labelSize+1)}, -0.5, -1, line)
		}
	}
}

func (p *painter) placeX(v float64) vg.Length {
	return p.area.Min.X + vg.Length(p.x.at(v))*(p.area.Max.X-p.area.Min.X)
}

func (p *painter) placeY(v float64) vg.Length {
	return p.area.Min.Y + vg.Length(p.y.at(v))*(p.area.Max.Y-p.area.Min.Y)
}

func (p *painter) place(x, y float64) vg.Point { return vg.Point{X: p.placeX(x), Y: p.placeY(y)} }

func (p *painter) grid() {
	thin := draw.LineStyle{Color: grid, Width: 0.7}
	for _, t := range p.y.ticks {
		if y := p.placeY(t.At); y >= p.area.Min.Y && y <= p.area.Max.Y {
			p.StrokeLine2(thin, p.area.Min.X, y, p.area.Max.X, y)
		}
	}
	if p.f.bars() {
		return
	}
	for _, t := range p.x.ticks {
		if x := p.placeX(t.At); x >= p.area.Min.X && x <= p.area.Max.X {
			p.StrokeLine2(thin, x, p.area.Min.Y, x, p.area.Max.Y)
		}
	}
}

// frame draws the two axes over everything else.
func (p *painter) frame() {
	sty := draw.LineStyle{Color: ink, Width: 1}
	p.StrokeLine2(sty, p.area.Min.X, p.area.Min.Y, p.area.Max.X, p.area.Min.Y)
	p.StrokeLine2(sty, p.area.Min.X, p.area.Min.Y, p.area.Min.X, p.area.Max.Y)
}

func (p *painter) bands() {
	for i, b := range p.f.Bands {
		lo, hi := max(p.placeX(b.From), p.area.Min.X), min(p.placeX(b.To), p.area.Max.X)
		if hi <= lo {
			continue
		}
		p.FillPolygon(shade[i%len(shade)], rect(lo, p.area.Min.Y, hi, p.area.Max.Y))
		for k, line := range p.wrap(noteSize, b.Label, hi-lo-6) {
			p.write(noteSize, faint, vg.Point{X: (lo + hi) / 2, Y: p.area.Max.Y - 2 - vg.Length(k)*(noteSize+1)}, -0.5, -1, line)
		}
	}
}

func (p *painter) marks() {
	sty := draw.LineStyle{Color: faint, Width: 1, Dashes: []vg.Length{3, 3}}
	for _, m := range p.f.Marks {
		if m.Horizontal {
			y := p.placeY(m.At)
			p.StrokeLine2(sty, p.area.Min.X, y, p.area.Max.X, y)
			p.write(noteSize, faint, vg.Point{X: p.area.Max.X - 2, Y: y + 2}, -1, 0, m.Label)
			continue
		}
		x := p.placeX(m.At)
		p.StrokeLine2(sty, x, p.area.Min.Y, x, p.area.Max.Y)
		side, at := 0.0, x+3
		if x+p.width(noteSize, m.Label)+6 > p.area.Max.X {
			side, at = -1, x-3
		}
		p.write(noteSize, faint, vg.Point{X: at, Y: p.area.Min.Y + 4}, side, 0, m.Label)
	}
}
