package plots

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"strconv"
	"strings"
)

// svg is a canvas that writes SVG.
type svg struct{ b bytes.Buffer }

func newSVG() *svg {
	s := &svg{}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="'Liberation Sans',Arial,Helvetica,sans-serif">`+"\n",
		width*96/72, height*96/72, width, height)
	return s
}

func (s *svg) end() []byte {
	s.b.WriteString("</svg>\n")
	return s.b.Bytes()
}

// num writes a length, y counting from the top.
func num(v float64) string { return strconv.FormatFloat(float64(int64(v*100+0.5))/100, 'f', -1, 64) }

func (s *svg) path(ps []point) {
	for i, p := range ps {
		op := byte('L')
		if i == 0 {
			op = 'M'
		}
		s.b.WriteByte(op)
		s.b.WriteString(num(p.x) + " " + num(height-p.y))
	}
}

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (s *svg) fill(c color.NRGBA, polygon []point) {
	fmt.Fprintf(&s.b, `<path fill="%s" d="`, hex(c))
	s.path(polygon)
	s.b.WriteString("Z\"/>\n")
}

func (s *svg) stroke(p pen, line []point) {
	dash := ""
	if len(p.dashes) > 0 {
		var ds []string
		for _, d := range p.dashes {
			ds = append(ds, num(d))
		}
		dash = ` stroke-dasharray="` + strings.Join(ds, " ") + `"`
	}
	fmt.Fprintf(&s.b, `<path fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"%s d="`, hex(p.color), num(p.width), dash)
	s.path(line)
	s.b.WriteString("\"/>\n")
}

func (s *svg) text(size float64, c color.NRGBA, at point, turned bool, text string) {
	place := fmt.Sprintf(`x="%s" y="%s"`, num(at.x), num(height-at.y))
	if turned {
		place = fmt.Sprintf(`transform="translate(%s %s) rotate(-90)"`, num(at.x), num(height-at.y))
	}
	fmt.Fprintf(&s.b, `<text %s font-size="%s" fill="%s">%s</text>`+"\n", place, num(size), hex(c), html.EscapeString(text))
}
