package plots

import (
	"image/color"
	"math"
)

// point is a place on a figure in points of 1/72 inch, the origin at the bottom left.
type point struct{ x, y float64 }

// box is an upright rectangle.
type box struct{ min, max point }

// pen is how a line looks.
type pen struct {
	color  color.NRGBA
	width  float64
	dashes []float64 // lengths on and off
}

// canvas is what a figure is drawn on: an SVG or an image.
type canvas interface {
	fill(c color.NRGBA, polygon []point)
	stroke(p pen, line []point)
	// text begins its baseline at a place; upright text runs to the right, turned text upwards.
	text(size float64, c color.NRGBA, at point, turned bool, s string)
}

// shapes are the outlines of markers of radius 1.
var shapes = [][]point{circle(1), square(0.9), polygon(3, 1.35, math.Pi/2), polygon(4, 1.3, math.Pi/2), polygon(3, 1.35, -math.Pi/2), star(), polygon(6, 1.15, 0), cross()}

func circle(r float64) []point { return polygon(32, r, 0) }
func square(r float64) []point { return []point{{-r, -r}, {r, -r}, {r, r}, {-r, r}} }

func polygon(n int, r, from float64) []point {
	var ps []point
	for i := range n {
		sin, cos := math.Sincos(from + 2*math.Pi*float64(i)/float64(n))
		ps = append(ps, point{r * cos, r * sin})
	}
	return ps
}

func star() []point {
	var ps []point
	for i := range 10 {
		r := 1.5
		if i%2 == 1 {
			r = 0.65
		}
		sin, cos := math.Sincos(math.Pi/2 + math.Pi*float64(i)/5)
		ps = append(ps, point{r * cos, r * sin})
	}
	return ps
}

func cross() []point {
	const a, b = 0.4, 1.2
	return []point{{-a, -b}, {a, -b}, {a, -a}, {b, -a}, {b, a}, {a, a}, {a, b}, {-a, b}, {-a, a}, {-b, a}, {-b, -a}, {-a, -a}}
}

func moved(shape []point, at point, r float64) []point {
	ps := make([]point, len(shape))
	for i, q := range shape {
		ps[i] = point{at.x + r*q.x, at.y + r*q.y}
	}
	return ps
}

func rect(x0, y0, x1, y1 float64) []point { return []point{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}} }

// overlap is the area that two boxes share.
func overlap(a, b box) float64 {
	return max(min(a.max.x, b.max.x)-max(a.min.x, b.min.x), 0) * max(min(a.max.y, b.max.y)-max(a.min.y, b.min.y), 0)
}
