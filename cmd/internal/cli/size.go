package clix

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var sizeUnits = []struct {
	name string
	mul  float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1},
}

// ParseSize reads "8GiB", "512 MiB", "1.5G", "4096": IEC units, and SI ones (GB) where written so.
func ParseSize(s string) (int64, error) {
	t := strings.TrimSpace(s)
	mul := 1.0
	for _, u := range sizeUnits {
		if n := len(t) - len(u.name); n > 0 && strings.EqualFold(t[n:], u.name) {
			t, mul = strings.TrimSpace(t[:n]), u.mul
			break
		}
	}
	v, err := strconv.ParseFloat(t, 64)
	if err != nil || strings.ContainsAny(t, "xXpPeEnN_") || v < 0 || math.IsInf(v, 0) || v*mul >= 1<<62 {
		return 0, fmt.Errorf("%q is not a size (write 8GiB, 512MiB or a number of bytes)", s)
	}
	return int64(v * mul), nil
}

// FormatSize writes a size in IEC units with three digits: "24.5 KiB", "1.86 GiB".
func FormatSize(n int64) string {
	if n < 0 {
		return "-" + FormatSize(-n)
	}
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, i := float64(n), -1
	for v >= 1023.5 && i < 5 {
		v /= 1024
		i++
	}
	digits := 2
	if v >= 99.95 {
		digits = 0
	} else if v >= 9.995 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[i]
}

// Duration writes a time in SI units with three digits: "812 µs", "1.25 s", "3m20s".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Microsecond:
		return d.String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if d >= u.size {
			return strconv.FormatFloat(float64(d)/float64(u.size), 'g', 3, 64) + " " + u.name
		}
	}
	return d.String()
}

// Count writes a number with its noun: "1 layer", "2 layers".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
