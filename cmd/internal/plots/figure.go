package plots

import (
	"fmt"
	"math"
)

// Kind is how the series of a figure are drawn.
type Kind int

const (
	Lines   Kind = iota // a line with markers for each series
	Scatter             // markers only, each with its label
	Bars                // a group of bars side by side for each category
	Stacked             // one bar for each category, the series on top of each other
)

// Figure is one picture. Bars and Stacked have Categories and, in each series, one Y for each of them; Lines and Scatter
// have an X for each Y. A value that is NaN is left out, a line broken there.
type Figure struct {
	Kind       Kind
	Title      string
	Note       string // a smaller line below the title: model, protocol, machine
	X, Y       Axis
	Categories []string
	Series     []Series
	Marks      []Mark
	Bands      []Band
	Values     bool // write every value at its bar
}

// Axis is one direction. Zero values choose from the data; a linear Y axis begins at 0 then.
type Axis struct {
	Label    string
	Unit     string // behind the label, in brackets
	Log      bool   // values must be above 0
	Whole    bool   // ticks at whole numbers only
	Free     bool   // a linear Y axis need not begin at 0
	Min, Max float64
	Ticks    []Tick // instead of round numbers
}

// Tick is a marked place of an axis.
type Tick struct {
	At    float64
	Label string
}

// Series is one set of values.
type Series struct {
	Name   string
	X, Y   []float64
	Err    []float64 // half-length of an error bar at each Y
	Labels []string  // of the points, in Scatter
}

// Mark is a dashed line across the figure with a label: vertical at X unless Horizontal, then at Y = At.
type Mark struct {
	Label      string
	At         float64
	Horizontal bool
}

// Band shades an interval of X and names it.
type Band struct {
	Label    string
	From, To float64
}

func (f *Figure) bars() bool { return f.Kind == Bars || f.Kind == Stacked }

// check refuses what cannot be drawn.
func (f *Figure) check() error {
	points := 0
	for _, s := range f.Series {
		n := len(s.X)
		if f.bars() {
			n = len(f.Categories)
		}
		if len(s.Y) != n || s.Err != nil && len(s.Err) != n || s.Labels != nil && len(s.Labels) != n {
			return fmt.Errorf("figure %q, series %q: %d values for %d places", f.Title, s.Name, len(s.Y), n)
		}
		for i, y := range s.Y {
			if !math.IsNaN(y) && (f.bars() || !math.IsNaN(s.X[i])) {
				points++
			}
			if math.IsInf(y, 0) || !f.bars() && math.IsInf(s.X[i], 0) {
				return fmt.Errorf("figure %q, series %q: value %d is infinite", f.Title, s.Name, i)
			}
			if f.Y.Log && y <= 0 || !f.bars() && f.X.Log && s.X[i] <= 0 || f.Kind == Stacked && y < 0 {
				return fmt.Errorf("figure %q, series %q: value %d is not above 0", f.Title, s.Name, i)
			}
		}
	}
	if points == 0 {
		return fmt.Errorf("figure %q: nothing to draw", f.Title)
	}
	return nil
}
