package plots

import (
	"image/color"
	"math"
	"strings"

	"golang.org/x/image/font/opentype"
)

// palette is Okabe and Ito's, the strongest on white first.
var palette = []color.NRGBA{
	rgb(0x00, 0x72, 0xb2), rgb(0xd5, 0x5e, 0x00), rgb(0x00, 0x9e, 0x73), rgb(0xcc, 0x79, 0xa7),
	rgb(0xe6, 0x9f, 0x00), rgb(0x56, 0xb4, 0xe9), rgb(0x00, 0x00, 0x00), rgb(0xf0, 0xe4, 0x42),
}

var (
	ink   = rgb(0x22, 0x22, 0x22)
	faint = rgb(0x66, 0x66, 0x66)
	grid  = rgb(0xe3, 0xe3, 0xe3)
	shade = []color.NRGBA{rgb(0xf2, 0xf4, 0xf7), rgb(0xfb, 0xf3, 0xe7)}
)

func rgb(r, g, b uint8) color.NRGBA { return color.NRGBA{r, g, b, 255} }

// dashes and shapes tell lines apart without colour.
var (
	dashes = [][]float64{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}, {10, 4}, {4, 2, 1, 2, 1, 2}}
)

const (
	margin      = 8.0
	titleSize   = 13.0
	labelSize   = 10.5
	noteSize    = 9.0
	glyphRadius = 3.0
)

// painter draws one figure.
type painter struct {
	c    canvas
	f    *Figure
	font *opentype.Font
	x, y scale
	area box // between the axes
	used []box
}

// paint draws f on a canvas.
func paint(c canvas, f Figure) error {
	if err := f.check(); err != nil {
		return err
	}
	font, err := sans()
	if err != nil {
		return err
	}
	p := &painter{c: c, f: &f, font: font}
	c.fill(rgb(255, 255, 255), rect(0, 0, width, height)) // dark text on a dark page is none
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

// write puts text at a place; x and y say which part of it lies there: 0 left or bottom, −0.5 the middle, −1 right or top.
func (p *painter) write(size float64, c color.NRGBA, at point, x, y float64, s string) {
	at.x += x * p.width(size, s)
	switch y {
	case 0:
		at.y += descent * size
	case -0.5: // the middle of what has no descender
		at.y -= 0.35 * size
	default:
		at.y -= ascent * size
	}
	p.c.text(size, c, at, false, s)
}

func (p *painter) width(size float64, s string) float64 { return textWidth(p.font, size, s) }

func (p *painter) line(sty pen, x0, y0, x1, y1 float64) {
	p.c.stroke(sty, []point{{x0, y0}, {x1, y1}})
}

func (p *painter) marker(i int, r float64, at point) {
	p.c.fill(colour(i), moved(shapes[i%len(shapes)], at, r))
}

// head writes title, note and legend and returns where they end.
func (p *painter) head() float64 {
	y := height - margin
	if p.f.Title != "" {
		p.write(titleSize, ink, point{x: margin, y: y}, 0, -1, p.f.Title)
		y -= titleSize + 5
	}
	if p.f.Note != "" {
		for _, line := range p.wrap(noteSize, p.f.Note, width-2*margin) {
			p.write(noteSize, faint, point{x: margin, y: y}, 0, -1, line)
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
	x := float64(margin)
	const swatch, between = 24, 14
	for i, s := range p.f.Series {
		if s.Name == "" {
			continue
		}
		w := swatch + 4 + p.width(labelSize, s.Name)
		if x > margin && x+w > width-margin {
			x, y = margin, y-labelSize-5
		}
		mid := y - labelSize/2 - 1
		switch {
		case p.f.bars():
			p.c.fill(colour(i), rect(x+6, mid-4, x+swatch-2, mid+4))
		case p.f.Kind == Lines:
			p.line(lineStyle(i), x, mid, x+swatch, mid)
			fallthrough
		default:
			p.marker(i, glyphRadius, point{x: x + swatch/2, y: mid})
		}
		p.write(labelSize, ink, point{x: x + swatch + 4, y: mid}, 0, -0.5, s.Name)
		x += w + between
	}
	return y - labelSize - 8
}

func colour(i int) color.NRGBA { return palette[i%len(palette)] }
func lineStyle(i int) pen      { return pen{colour(i), 1.8, dashes[i%len(dashes)]} }

// wrap breaks s at spaces into lines no wider than w.
func (p *painter) wrap(size float64, s string, w float64) []string {
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
func (p *painter) axes(top float64) {
	left, bottom := float64(margin), float64(margin)
	if s := title(p.f.Y); s != "" {
		left += labelSize + 5
	}
	widest := 0.0
	for _, t := range p.y.ticks {
		widest = max(widest, p.width(labelSize, t.Label))
	}
	p.area.min.x, p.area.max.x = left+widest+5, width-margin-6
	if s := title(p.f.X); s != "" {
		bottom += labelSize + 5
	}
	names, lines := make([][]string, len(p.x.ticks)), 1
	for i, t := range p.x.ticks {
		names[i] = []string{t.Label}
		if p.f.bars() {
			names[i] = p.wrap(labelSize, t.Label, (p.area.max.x-p.area.min.x)/float64(len(p.x.ticks))-4)
			lines = max(lines, len(names[i]))
		}
	}
	p.area.min.y, p.area.max.y = bottom+float64(lines)*(labelSize+1)+5, top-4
	if s := title(p.f.X); s != "" {
		p.write(labelSize, ink, point{x: (p.area.min.x + p.area.max.x) / 2, y: margin}, -0.5, 0, s)
	}
	if s := title(p.f.Y); s != "" {
		at := point{margin + ascent*labelSize, (p.area.min.y+p.area.max.y)/2 - p.width(labelSize, s)/2}
		p.c.text(labelSize, ink, at, true, s)
	}
	for _, t := range p.y.ticks {
		if y := p.placeY(t.At); y >= p.area.min.y-1 && y <= p.area.max.y+1 {
			p.write(labelSize, ink, point{x: p.area.min.x - 5, y: y}, -1, -0.5, t.Label)
		}
	}
	end := p.area.min.x - 1e3
	for i, t := range p.x.ticks {
		x := p.placeX(t.At)
		half := p.width(labelSize, names[i][0]) / 2
		if x < p.area.min.x-1 || x > p.area.max.x+1 || !p.f.bars() && x-half < end+6 {
			continue // no room beside the label before
		}
		end = x + half
		for k, line := range names[i] {
			p.write(labelSize, ink, point{x: x, y: p.area.min.y - 5 - float64(k)*(labelSize+1)}, -0.5, -1, line)
		}
	}
}

func (p *painter) placeX(v float64) float64 {
	return p.area.min.x + p.x.at(v)*(p.area.max.x-p.area.min.x)
}

func (p *painter) placeY(v float64) float64 {
	return p.area.min.y + p.y.at(v)*(p.area.max.y-p.area.min.y)
}

func (p *painter) place(x, y float64) point { return point{x: p.placeX(x), y: p.placeY(y)} }

func (p *painter) grid() {
	thin := pen{color: grid, width: 0.7}
	for _, t := range p.y.ticks {
		if y := p.placeY(t.At); y >= p.area.min.y && y <= p.area.max.y {
			p.line(thin, p.area.min.x, y, p.area.max.x, y)
		}
	}
	if p.f.bars() {
		return
	}
	for _, t := range p.x.ticks {
		if x := p.placeX(t.At); x >= p.area.min.x && x <= p.area.max.x {
			p.line(thin, x, p.area.min.y, x, p.area.max.y)
		}
	}
}

// frame draws the two axes over everything else.
func (p *painter) frame() {
	sty := pen{color: ink, width: 1}
	p.line(sty, p.area.min.x, p.area.min.y, p.area.max.x, p.area.min.y)
	p.line(sty, p.area.min.x, p.area.min.y, p.area.min.x, p.area.max.y)
}

func (p *painter) bands() {
	for i, b := range p.f.Bands {
		lo, hi := max(p.placeX(b.From), p.area.min.x), min(p.placeX(b.To), p.area.max.x)
		if hi <= lo {
			continue
		}
		p.c.fill(shade[i%len(shade)], rect(lo, p.area.min.y, hi, p.area.max.y))
		for k, line := range p.wrap(noteSize, b.Label, hi-lo-6) {
			p.write(noteSize, faint, point{x: (lo + hi) / 2, y: p.area.max.y - 2 - float64(k)*(noteSize+1)}, -0.5, -1, line)
		}
	}
}

func (p *painter) marks() {
	sty := pen{color: faint, width: 1, dashes: []float64{3, 3}}
	for _, m := range p.f.Marks {
		if m.Horizontal {
			y := p.placeY(m.At)
			p.line(sty, p.area.min.x, y, p.area.max.x, y)
			p.write(noteSize, faint, point{x: p.area.max.x - 2, y: y + 2}, -1, 0, m.Label)
			continue
		}
		x := p.placeX(m.At)
		p.line(sty, x, p.area.min.y, x, p.area.max.y)
		side, at := 0.0, x+3
		if x+p.width(noteSize, m.Label)+6 > p.area.max.x {
			side, at = -1, x-3
		}
		p.write(noteSize, faint, point{x: at, y: p.area.min.y + 4}, side, 0, m.Label)
	}
}
