package plots

import "math"

// manyPoints is where markers would hide the line.
const manyPoints = 40

func (p *painter) lines() {
	for i, s := range p.f.Series {
		var run []point
		sty := lineStyle(i)
		if len(s.Y) > manyPoints {
			sty.width = 1.2
		}
		end := func() {
			if len(run) > 1 {
				p.c.stroke(sty, run)
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
			p.marker(i, glyphRadius, at[0])
		}
		if len(s.Y) <= manyPoints {
			for k := range s.Y {
				if !math.IsNaN(s.X[k]) && !math.IsNaN(s.Y[k]) {
					p.marker(i, glyphRadius, p.place(s.X[k], s.Y[k]))
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
	p.whiskerAt(p.placeX(x), s.Y[k], s.Err[k], pen{color: colour(i), width: 1})
}

func (p *painter) whiskerAt(x float64, y, e float64, sty pen) {
	lo, hi := p.area.min.y, p.placeY(y+e)
	if !p.f.Y.Log || y-e > 0 {
		lo = max(lo, p.placeY(y-e))
	}
	p.line(sty, x, lo, x, hi)
	for _, at := range []float64{lo, hi} {
		p.line(sty, x-3, at, x+3, at)
	}
}

func (p *painter) scatter() {
	each := func(f func(i, k int, s Series, at point)) {
		for i, s := range p.f.Series {
			for k := range s.Y {
				if !math.IsNaN(s.X[k]) && !math.IsNaN(s.Y[k]) {
					f(i, k, s, p.place(s.X[k], s.Y[k]))
				}
			}
		}
	}
	each(func(i, k int, s Series, at point) {
		p.whisker(s, i, k)
		const r = glyphRadius + 1
		p.marker(i, r, at)
		p.used = append(p.used, box{min: point{x: at.x - r, y: at.y - r}, max: point{x: at.x + r, y: at.y + r}})
	})
	each(func(_, k int, s Series, at point) {
		if s.Labels != nil && s.Labels[k] != "" {
			p.label(at, s.Labels[k])
		}
	})
}

// label writes beside a point, on the side where the least is in the way.
func (p *painter) label(at point, s string) {
	w, h, gap := p.width(noteSize, s), noteSize, 6.0
	var best box
	least := math.Inf(1)
	for i, min := range []point{{x: at.x + gap, y: at.y - h/2}, {x: at.x - gap - w, y: at.y - h/2}, {x: at.x - w/2, y: at.y + gap}, {x: at.x - w/2, y: at.y - gap - h},
		{x: at.x + gap, y: at.y + gap}, {x: at.x + gap, y: at.y - gap - h}, {x: at.x - gap - w, y: at.y + gap}, {x: at.x - gap - w, y: at.y - gap - h}} {
		r := box{min: min, max: point{x: min.x + w, y: min.y + h}}
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
	p.write(noteSize, ink, point{x: best.min.x, y: best.min.y + h/2}, 0, -0.5, s)
}

func (p *painter) barChart() {
	n := len(p.f.Series)
	slot := (p.area.max.x - p.area.min.x) / float64(len(p.f.Categories))
	group := min(slot*0.78, 46*float64(n)+30)
	if p.f.Kind == Stacked {
		group = min(slot*0.62, 90)
	}
	zero := p.area.min.y
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
				w := group / float64(n)
				x0 = mid - group/2 + float64(i)*w
				x1 = x0 + w - min(1.5, w/8)
			}
			p.c.fill(colour(i), rect(x0, lo, x1, hi))
			if p.f.Kind == Stacked {
				p.line(pen{color: rgb(255, 255, 255), width: 1}, x0, hi, x1, hi)
			} else if s.Err != nil && s.Err[k] > 0 {
				p.whiskerAt((x0+x1)/2, y, s.Err[k], pen{color: ink, width: 1})
				hi = p.placeY(y + s.Err[k])
			}
			if p.f.Values && p.f.Kind == Bars {
				if t := short(y); p.width(noteSize, t) <= slot/float64(n)+6 {
					p.write(noteSize, ink, point{x: (x0 + x1) / 2, y: hi + 2}, -0.5, 0, t)
				}
			}
		}
	}
	if p.f.Values && p.f.Kind == Stacked {
		for k, sum := range base {
			p.write(noteSize, ink, point{x: p.placeX(float64(k)), y: p.placeY(sum) + 2}, -0.5, 0, short(sum))
		}
	}
}
