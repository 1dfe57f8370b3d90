package plots

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// raster is a canvas of dots.
type raster struct {
	img   *image.NRGBA
	faces map[float64]font.Face // by size
}

// dots per point of 1/72 inch.
const dots = pngDPI / 72.0

func newRaster() *raster {
	img := image.NewNRGBA(image.Rect(0, 0, int(math.Round(width*dots)), int(math.Round(height*dots))))
	return &raster{img: img, faces: map[float64]font.Face{}}
}

func (r *raster) end() ([]byte, error) {
	var b bytes.Buffer
	err := png.Encode(&b, r.img)
	return b.Bytes(), err
}

// dot is a point in dots, y counting from the top.
func (r *raster) dot(p point) (x, y float64) {
	return p.x * dots, float64(r.img.Rect.Dy()) - p.y*dots
}

func (r *raster) fill(c color.NRGBA, polygon []point) {
	if len(polygon) < 3 {
		return
	}
	x0, y0, x1, y1 := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, p := range polygon {
		x, y := r.dot(p)
		x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
	}
	area := image.Rect(int(math.Floor(x0)), int(math.Floor(y0)), int(math.Ceil(x1)), int(math.Ceil(y1)))
	if area.Empty() {
		return
	}
	z := vector.NewRasterizer(area.Dx(), area.Dy())
	for i, p := range polygon {
		x, y := r.dot(p)
		fx, fy := float32(x-float64(area.Min.X)), float32(y-float64(area.Min.Y))
		if i == 0 {
			z.MoveTo(fx, fy)
		} else {
			z.LineTo(fx, fy)
		}
	}
	z.ClosePath()
	mask := image.NewAlpha(image.Rect(0, 0, area.Dx(), area.Dy()))
	z.Draw(mask, mask.Rect, image.Opaque, image.Point{})
	draw.DrawMask(r.img, area, image.NewUniform(c), image.Point{}, mask, image.Point{}, draw.Over)
}

// stroke fills a bar for every straight piece and a disc at every joint.
func (r *raster) stroke(p pen, line []point) {
	on, left, k := true, math.Inf(1), 0
	if len(p.dashes) > 0 {
		left = p.dashes[0]
	}
	for i := 1; i < len(line); i++ {
		a, b := line[i-1], line[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		ux, uy := (b.x-a.x)/length, (b.y-a.y)/length
		if on && i > 1 {
			r.fill(p.color, moved(circle(p.width/2), a, 1))
		}
		for done := 0.0; done < length; {
			n := min(left, length-done)
			if on {
				s, e := point{a.x + done*ux, a.y + done*uy}, point{a.x + (done+n)*ux, a.y + (done+n)*uy}
				ox, oy := -uy*p.width/2, ux*p.width/2
				r.fill(p.color, []point{{s.x + ox, s.y + oy}, {e.x + ox, e.y + oy}, {e.x - ox, e.y - oy}, {s.x - ox, s.y - oy}})
			}
			done += n
			if left -= n; left <= 0 {
				k = (k + 1) % len(p.dashes)
				on, left = !on, p.dashes[k]
			}
		}
	}
}

func (r *raster) text(size float64, c color.NRGBA, at point, turned bool, s string) {
	face := r.faces[size]
	if face == nil {
		f, err := sans()
		if err == nil {
			face, err = opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: pngDPI})
		}
		if err != nil {
			return // paint has measured text with the same font
		}
		r.faces[size] = face
	}
	x, y := r.dot(at)
	if !turned {
		d := font.Drawer{Dst: r.img, Src: image.NewUniform(c), Face: face, Dot: fixed.Point26_6{X: fixed.Int26_6(x * 64), Y: fixed.Int26_6(y * 64)}}
		d.DrawString(s)
		return
	}
	m := face.Metrics()
	w, up, down := font.MeasureString(face, s).Ceil()+2, m.Ascent.Ceil(), m.Descent.Ceil()
	flat := image.NewAlpha(image.Rect(0, 0, w, up+down))
	d := font.Drawer{Dst: flat, Src: image.Opaque, Face: face, Dot: fixed.P(0, up)}
	d.DrawString(s)
	mask := image.NewAlpha(image.Rect(0, 0, up+down, w))
	for j := range up + down {
		for i := range w {
			mask.SetAlpha(j, w-1-i, flat.AlphaAt(i, j))
		}
	}
	to := image.Pt(int(x)-up, int(y)-w)
	draw.DrawMask(r.img, mask.Rect.Add(to), image.NewUniform(c), image.Point{}, mask, image.Point{}, draw.Over)
}
