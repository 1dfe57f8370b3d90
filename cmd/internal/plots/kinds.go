package plots

import (
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// manyPoints is where markers would hide the line.
const manyPoints = 40

func (p *painter) lines() {
	for i, s := range p.f.Series {
		var run []vg.Point
		sty := lineStyle(i)
		if len(s.Y) > manyPoints {
			sty.Width = 1.2
		}
		end := func() {
			if len(run) > 1 {
				p.StrokeLines(sty, run)
			}
			run = nil
		}
		for k := range s.Y {
			if math.IsNaN(s.X[k]) || math.IsNaN(s.Y[k]) {
				end()
				continue
			}
			p.whisker(s, i, k)
			run = append(run, p.place(s.X[k], s.Y[k]))
		}
		alone := len(run) == 1 && len(s.Y) > manyPoints
		at := run
		end()
		if alone {
			p.DrawGlyphNoClip(glyph(i), at[0])
		}
		if len(s.Y) <= manyPoints {
			for k := range s.Y {
				if !math.IsNaN(s.X[k]) && !math.IsNaN(s.Y[k]) {
					p.DrawGlyphNoClip(glyph(i), p.place(s.X[k], s.Y[k]))
				}
			}
		}
	}
}

// whisker draws the error bar of value k.
func (p *painter) whisker(s Series, i, k int) {
	if s.Err == nil || !(s.Err[k] > 0) {
		return
	}
	x := float64(k)
	if !p.f.bars() {
		x = s.X[k]
	}
	p.whiskerAt(p.placeX(x), s.Y[k], s.Err[k], draw.LineStyle{Color: colour(i), Width: 1})
}

func (p *painter) whiskerAt(x vg.Length, y, e float64, sty draw.LineStyle) {
	lo, hi := p.area.Min.Y, p.placeY(y+e)
	if !p.f.Y.Log || y-e > 0 {
		lo = max(lo, p.placeY(y-e))
	}
	p.StrokeLine2(sty, x, lo, x, hi)
	for _, at := range []vg.Length{lo, hi} {
		p.StrokeLine2(sty, x-3, at, x+3, at)
	}
}

func (p *painter) scatter() {
	each := func(f func(i, k int, s Series, at vg.Point)) {
		for i, s := range p.f.Series {
			for k := range s.Y {
				if !math.IsNaN(s.X[k]) && !math.IsNaN(s.Y[k]) {
					f(i, k, s, p.place(s.X[k], s.Y[k]))
				}
			}
		}
	}
	each(func(i, k int, s Series, at vg.Point) {
		p.whisker(s, i, k)
		g := glyph(i)
		g.Radius++
		p.DrawGlyphNoClip(g, at)
		r := g.Radius
		p.used = append(p.used, vg.Rectangle{Min: vg.Point{X: at.X - r, Y: at.Y - r}, Max: vg.Point{X: at.X + r, Y: at.Y + r}})
	})
	each(func(_, k int, s Series, at vg.Point) {
		if s.Labels != nil && s.Labels[k] != "" {
			p.label(at, s.Labels[k])
		}
	})
}

// label writes beside a point, on the side where the least is in the way.
func (p *painter) label(at vg.Point, s string) {
	w, h, gap := p.width(noteSize, s), noteSize, vg.Length(6)
	var best vg.Rectangle
	least := math.Inf(1)
	for i, min := range []vg.Point{{X: at.X + gap, Y: at.Y - h/2}, {X: at.X - gap - w, Y: at.Y - h/2}, {X: at.X - w/2, Y: at.Y + gap}, {X: at.X - w/2, Y: at.Y - gap - h},
		{X: at.X + gap, Y: at.Y + gap}, {X: at.X + gap, Y: at.Y - gap - h}, {X: at.X - gap - w, Y: at.Y + gap}, {X: at.X - gap - w, Y: at.Y - gap - h}} {
		r := vg.Rectangle{Min: min, Max: vg.Point{X: min.X + w, Y: min.Y + h}}
		cost := 0.01 * float64(i)
		for _, u := range p.used {
			cost += float64(overlap(r, u))
		}
		cost += float64(w*h - overlap(r, p.area)) // outside the area
		if cost < least {
			best, least = r, cost
		}
	}
	p.used = append(p.used, best)
	p.write(noteSize, ink, vg.Point{X: best.Min.X, Y: best.Min.Y + h/2}, 0, -0.5, s)
}

func overlap(a, b vg.Rectangle) vg.Length {
	w := min(a.Max.X, b.Max.X) - max(a.Min.X, b.Min.X)
	h := min(a.Max.Y, b.Max.Y) - max(a.Min.Y, b.Min.Y)
	return max(w, 0) * max(h, 0)
}

func (p *painter) barChart() {
	n := len(p.f.Series)
	slot := (p.area.Max.X - p.area.Min.X) / vg.Length(len(p.f.Categories))
	group := min(slot*0.78, 46*vg.Length(n)+30)
	if p.f.Kind == Stacked {
		group = min(slot*0.62, 90)
	}
	zero := p.area.Min.Y
	if !p.y.log {
		zero = p.placeY(max(p.y.lo, 0))
	}
	base := make([]float64, len(p.f.Categories))
	for i, s := range p.f.Series {
		for k, y := range s.Y {
			if math.IsNaN(y) {
				continue
			}
			mid := p.placeX(float64(k))
			lo, hi, x0, x1 := zero, p.placeY(y), mid-group/2, mid+group/2
			if p.f.Kind == Stacked {
				lo, hi = p.placeY(base[k]), p.placeY(base[k]+y)
				base[k] += y
			} else {
				w := group / vg.Length(n)
				x0 = mid - group/2 + vg.Length(i)*w
				x1 = x0 + w - min(1.5, w/8)
			}
			p.FillPolygon(colour(i), rect(x0, lo, x1, hi))
			if p.f.Kind == Stacked {
				p.StrokeLine2(draw.LineStyle{Color: rgb(255, 255, 255), Width: 1}, x0, hi, x1, hi)
			} else if s.Err != nil && s.Err[k] > 0 {
				p.whiskerAt((x0+x1)/2, y, s.Err[k], draw.LineStyle{Color: ink, Width: 1})
				hi = p.placeY(y + s.Err[k])
			}
			if p.f.Values && p.f.Kind == Bars {
				if t := short(y); p.width(noteSize, t) <= slot/vg.Length(n)+6 {
					p.write(noteSize, ink, vg.Point{X: (x0 + x1) / 2, Y: hi + 2}, -0.5, 0, t)
				}
			}
		}
	}
	if p.f.Values && p.f.Kind == Stacked {
		for k, sum := range base {
			p.write(noteSize, ink, vg.Point{X: p.placeX(float64(k)), Y: p.placeY(sum) + 2}, -0.5, 0, short(sum))
		}
	}
}
