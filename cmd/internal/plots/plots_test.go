package plots

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func examples() map[string]Figure {
	nan := math.NaN()
	return map[string]Figure{
		"lines": {Title: "Speed over the dense prefix", Note: "SmolLM2-135M, K_max 768, budget 300 MiB", X: Axis{Label: "dense prefix d", Unit: "layers"}, Y: Axis{Label: "speed", Unit: "tok/s"},
			Series: []Series{{Name: "sparse", X: []float64{1, 5, 10, 15, 20}, Y: []float64{10, 14, 21, 24, 18}, Err: []float64{1, 1, 2, 1, 1}}, {Name: "stream", X: []float64{1, 5, 10, 15, 20}, Y: []float64{5, 6, nan, 9, 11}}},
			Marks:  []Mark{{Label: "d* = 15", At: 15}, {Label: "resident 28", At: 28, Horizontal: true}}, Bands: []Band{{"waits for the drive", 1, 12}, {"computes", 12, 20}}},
		"scatter": {Kind: Scatter, Title: "Memory against quality", X: Axis{Label: "memory", Unit: "MiB", Log: true}, Y: Axis{Label: "perplexity ratio", Free: true},
			Series: []Series{{Name: "lookahead", X: []float64{100, 1000, 1001}, Y: []float64{1.2, 1.05, 1.051}, Labels: []string{"62 %", "50 %", "49 %"}}, {Name: "paper", X: []float64{100}, Y: []float64{2.6}, Labels: []string{"paper"}}}},
		"bars": {Kind: Bars, Title: "Quality", X: Axis{Label: "sparsity"}, Y: Axis{Label: "perplexity"}, Categories: []string{"31 %", "50 % of the neurons", "62 %"}, Values: true,
			Series: []Series{{Name: "lookahead", Y: []float64{31, 33, 34}, Err: []float64{2, 2, 2}}, {Name: "paper", Y: []float64{49, 63, nan}}, {Name: "static", Y: []float64{40, 51, 62}}}},
		"stacked": {Kind: Stacked, Title: "Where a token's time goes", Y: Axis{Label: "time per token", Unit: "ms"}, Categories: []string{"stream", "sparse"}, Values: true,
			Series: []Series{{Name: "computing", Y: []float64{10, 9}}, {Name: "waiting for rows", Y: []float64{30, 8}}, {Name: "predicting", Y: []float64{0, 2}}}},
	}
}

// TestWrite holds that every kind gives a well-formed SVG with all its words, and a PNG of the stated size, and that both
// are the same bytes a second time.
func TestWrite(t *testing.T) {
	for name, f := range examples() {
		dir := filepath.Join(t.TempDir(), "new")
		files, err := Write(dir, name, f)
		if err != nil || len(files) != 2 {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		var words bytes.Buffer
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c, ok := tok.(xml.CharData); ok {
				words.Write(c)
			}
		}
		for _, s := range f.Series {
			if !strings.Contains(words.String(), s.Name) {
				t.Errorf("%s: no legend for %q", name, s.Name)
			}
		}
		for _, want := range []string{f.Title, title(f.Y)} {
			if !strings.Contains(words.String(), want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s: a coordinate is no number", name)
		}
		raw, err := os.ReadFile(filepath.Join(dir, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(raw))
		if err != nil || img.Bounds().Dx() != 1600 {
			t.Errorf("%s: %v, %v", name, img.Bounds(), err)
		}
		if again, _ := SVG(f); !bytes.Equal(again, svg) {
			t.Errorf("%s: another SVG the second time", name)
		}
		if again, _ := PNG(f); !bytes.Equal(again, raw) {
			t.Errorf("%s: another PNG the second time", name)
		}
	}
}

// TestRefused holds that what cannot be drawn is an error and leaves no file.
func TestRefused(t *testing.T) {
	for name, f := range map[string]Figure{
		"nothing":  {},
		"all nan":  {Series: []Series{{X: []float64{1}, Y: []float64{math.NaN()}}}},
		"lengths":  {Series: []Series{{X: []float64{1}, Y: []float64{1, 2}}}},
		"infinite": {Series: []Series{{X: []float64{1}, Y: []float64{math.Inf(1)}}}},
		"log of 0": {Y: Axis{Log: true}, Series: []Series{{X: []float64{1}, Y: []float64{0}}}},
		"stack":    {Kind: Stacked, Categories: []string{"a"}, Series: []Series{{Y: []float64{-1}}}},
		"category": {Kind: Bars, Categories: []string{"a"}, Series: []Series{{Y: []float64{1, 2}}}},
	} {
		dir := t.TempDir()
		if files, err := Write(dir, "x", f); err == nil || len(files) > 0 {
			t.Errorf("%s: %v, %v", name, files, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// TestDegenerate holds that one point, equal values, and negative ones can be drawn.
func TestDegenerate(t *testing.T) {
	for name, f := range map[string]Figure{
		"one":      {Series: []Series{{X: []float64{3}, Y: []float64{5}}}},
		"zero":     {Series: []Series{{X: []float64{0, 0}, Y: []float64{0, 0}}}},
		"negative": {Kind: Bars, Categories: []string{"a", "b"}, Series: []Series{{Y: []float64{-3, 2}}}},
		"log one":  {X: Axis{Log: true}, Y: Axis{Log: true}, Series: []Series{{X: []float64{8}, Y: []float64{8}}}},
		"tiny":     {Series: []Series{{X: []float64{1e-9, 2e-9}, Y: []float64{1e-12, 3e-12}}}},
	} {
		svg, err := SVG(f)
		if err != nil || bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s: %v\n%s", name, err, svg)
		}
	}
}

// TestTicks holds that ticks are round, inside their range and neither too few nor too many.
func TestTicks(t *testing.T) {
	for _, r := range [][2]float64{{0, 1}, {0, 7.3}, {-3, 3}, {1000, 1001}, {0, 123456}, {1e-6, 2e-6}, {0.5, 62}} {
		ts := linearTicks(r[0], r[1], 7)
		if len(ts) < 3 || len(ts) > 8 {
			t.Errorf("%v: %d ticks", r, len(ts))
		}
		for _, x := range ts {
			if x.At < r[0]-1e-6*(r[1]-r[0]) || x.At > r[1]+1e-6*(r[1]-r[0]) {
				t.Errorf("%v: tick at %v", r, x.At)
			}
		}
	}
	for v, want := range map[float64]string{0: "0", 12345: "12,345", 1234: "1234", 0.25: "0.25", 31.04: "31", 1.0449: "1.04", 1500: "1500", 99.96: "100", 0.00123: "0.00123"} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
}
