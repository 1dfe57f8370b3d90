package plots

import (
	"io"
	"os"
	"path/filepath"

	"neuroprefetcher/format"
)

// A figure is as wide as a README's text: 800 pixels of an SVG, and twice as many dots in a PNG, for sharp screens.
const (
	width  = 600.0 // points
	height = 350.0
	pngDPI = 192
)

// Write draws a figure into dir/name.svg and dir/name.png and returns the two files. It makes dir where there is none.
func Write(dir, name string, f Figure) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, format.IOf("%w", err)
	}
	var files []string
	for _, kind := range []struct {
		ext  string
		draw func(Figure) ([]byte, error)
	}{{".svg", SVG}, {".png", PNG}} {
		data, err := kind.draw(f)
		if err != nil {
			return files, err
		}
		path := filepath.Join(dir, name+kind.ext)
		err = format.WriteFileAtomicSize(path, int64(len(data)), func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}

// SVG draws a figure as an SVG document. Its text is text, in whatever sans-serif font the reader has.
func SVG(f Figure) ([]byte, error) {
	c := newSVG()
	if err := paint(c, f); err != nil {
		return nil, err
	}
	return c.end(), nil
}

// PNG draws a figure as a PNG.
func PNG(f Figure) ([]byte, error) {
	c := newRaster()
	if err := paint(c, f); err != nil {
		return nil, err
	}
	return c.end()
}
