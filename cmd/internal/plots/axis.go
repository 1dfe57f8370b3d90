package plots

import (
	"math"
	"slices"
	"strconv"
)

// scale maps values of an axis to 0..1.
type scale struct {
	lo, hi float64 // logarithms where log
	log    bool
	ticks  []Tick
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return (v - s.lo) / (s.hi - s.lo)
}

// newScale makes room for lo..hi, of which an axis asks for about want ticks.
func newScale(a Axis, lo, hi float64, zero bool, want int) scale {
	if a.Min != 0 || a.Max != 0 {
		if a.Min != 0 || !a.Log {
			lo = a.Min
		}
		if a.Max != 0 {
			hi = a.Max
		}
	}
	s := scale{log: a.Log}
	if a.Log {
		lo, hi = math.Log10(lo), math.Log10(hi)
		if hi-lo < 0.3 {
			mid := (lo + hi) / 2
			lo, hi = mid-0.15, mid+0.15
		}
		pad := 0.04 * (hi - lo)
		s.lo, s.hi, s.ticks = lo-pad, hi+pad, a.Ticks
		if s.ticks == nil {
			s.ticks = logTicks(s.lo, s.hi, want)
		}
		return s
	}
	if zero && a.Min == 0 {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	if hi == lo {
		d := max(math.Abs(hi), 1) / 2
		if zero && lo == 0 {
			hi += 2 * d
		} else {
			lo, hi = lo-d, hi+d
		}
	}
	pad := 0.04 * (hi - lo)
	s.lo, s.hi, s.ticks = lo, hi, a.Ticks
	if !(zero && lo == 0) && a.Min == 0 {
		s.lo -= pad
	}
	if !(zero && hi == 0) && a.Max == 0 {
		s.hi += pad
	}
	if s.ticks == nil {
		s.ticks = linearTicks(s.lo, s.hi, want)
		if a.Whole {
			s.ticks = slices.DeleteFunc(linearTicks(s.lo, s.hi, min(want, max(int(s.hi-s.lo), 1))), func(t Tick) bool { return t.At != math.Trunc(t.At) })
		}
	}
	return s
}

// linearTicks are multiples of 1, 2 or 5 times a power of ten.
func linearTicks(lo, hi float64, want int) []Tick {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(want))))
	for _, m := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*m) <= float64(want) {
			step *= m
			break
		}
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	var ts []Tick
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*step; k++ {
		v := k*step + 0 // not −0
		ts = append(ts, Tick{v, number(v, digits)})
	}
	return ts
}

// logTicks are powers of ten, with 2 and 5 times them where there is room.
func logTicks(lo, hi float64, want int) []Tick {
	mul := []float64{1}
	switch span := hi - lo; {
	case span <= float64(want)/7:
		mul = []float64{1, 1.5, 2, 3, 4, 5, 6, 8}
	case span <= float64(want)/3:
		mul = []float64{1, 2, 5}
	}
	var ts []Tick
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range mul {
			v := m * math.Pow(10, e)
			if l := math.Log10(v); l >= lo-1e-9 && l <= hi+1e-9 {
				ts = append(ts, Tick{v, short(v)})
			}
		}
	}
	return ts
}

// number writes v with thousands set apart.
func number(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	sign := ""
	if s[0] == '-' {
		sign, s = "−", s[1:]
	}
	whole, rest := s, ""
	for i := range s {
		if s[i] == '.' {
			whole, rest = s[:i], s[i:]
			break
		}
	}
	if len(whole) > 4 {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "," + whole[i:]
		}
	}
	return sign + whole + rest
}

// short writes a value with three digits, as a label.
func short(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 1e7 || a < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 100:
		return number(v, 0)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
