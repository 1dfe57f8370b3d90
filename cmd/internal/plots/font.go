package plots

import (
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
)

var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// handler writes text in the one font there is.
var handler = sync.OnceValues(func() (text.Handler, error) {
	face, err := opentype.Parse(liberationsansregular.TTF)
	if err != nil {
		return nil, err
	}
	return text.Plain{Fonts: font.NewCache(font.Collection{{Font: sans, Face: face}})}, nil
})
