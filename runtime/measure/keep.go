package measure

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/storage"
)

// maxKept bounds a file of measurements.
const maxKept = 4 << 20

// curvePath is where the curve of a drive is kept in dir.
func curvePath(dir string, d storage.Drive) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, d.Device)
	return filepath.Join(dir, "drive-"+name+".json")
}

// Keep writes the curve into dir, where KeptCurve finds it, and returns the file.
func (c *Curve) Keep(dir string) (string, error) {
	path := curvePath(dir, c.Drive)
	return path, writeJSON(path, c)
}

// KeptCurve returns the curve kept in dir for the drive under path; false when there is none that this version reads.
func KeptCurve(dir, path string) (*Curve, bool) {
	d, err := storage.DriveOf(path)
	if err != nil {
		return nil, false
	}
	c := &Curve{}
	if readJSON(curvePath(dir, d), c) != nil || c.Version != curveVersion || c.Drive != d {
		return nil, false
	}
	for _, x := range c.Cells {
		if !(x.Size > 0 && x.BytesPer > 0) {
			return nil, false
		}
	}
	return c, true
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	return format.WriteFileAtomicSize(path, int64(len(data)), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func readJSON(path string, v any) error {
	data, err := format.ReadFile(path, maxKept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return format.Corruptf("%s: %w", path, err)
	}
	return nil
}
