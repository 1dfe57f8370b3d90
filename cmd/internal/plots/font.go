package plots

import (
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// sans is the one font, parsed when the first figure is drawn.
var sans = sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(liberationsansregular.TTF) })

// Of the font, as shares of its size: what stands above and below the baseline.
const ascent, descent = 0.905, 0.212

// textWidth is how wide s is at a size, without kerning, which the pictures do not use either.
func textWidth(f *opentype.Font, size float64, s string) float64 {
	var buf sfnt.Buffer
	em := fixed.Int26_6(f.UnitsPerEm())
	var sum fixed.Int26_6
	for _, c := range s {
		i, err := f.GlyphIndex(&buf, c)
		if err != nil {
			continue
		}
		if a, err := f.GlyphAdvance(&buf, i, em, 0); err == nil {
			sum += a
		}
	}
	return size * float64(sum) / float64(em)
}
