package importer

import (
	"math"
	"strconv"

	"neuroprefetcher/format"
)

// meta reads typed values of the header. Absent is told from wrong: a key that is there with another type is a refusal by name.
type meta struct {
	path string
	kv   map[string]any
}

func (m meta) wrong(key, want string) error {
	return format.Inputf("%s: key %q: is a %T, want %s", m.path, key, m.kv[key], want)
}

func (m meta) missing(key string) error {
	return format.Inputf("%s: key %q is missing", m.path, key)
}

// integer reads a whole number of any width.
func (m meta) integer(key string) (v int64, ok bool, err error) {
	switch x := m.kv[key].(type) {
	case nil:
		return 0, false, nil
	case uint8:
		v = int64(x)
	case int8:
		v = int64(x)
	case uint16:
		v = int64(x)
	case int16:
		v = int64(x)
	case uint32:
		v = int64(x)
	case int32:
		v = int64(x)
	case int64:
		v = x
	case uint64:
		if x > math.MaxInt64 {
			return 0, false, format.Inputf("%s: key %q: %d is out of range", m.path, key, x)
		}
		v = int64(x)
	default:
		return 0, false, m.wrong(key, "a whole number")
	}
	return v, true, nil
}

// size reads a whole number in [lo, hi]; def where the key is absent, which is an error if def is negative.
func (m meta) size(key string, def, lo, hi int) (int, error) {
	v, ok, err := m.integer(key)
	switch {
	case err != nil:
		return 0, err
	case !ok && def < 0:
		return 0, m.missing(key)
	case !ok:
		return def, nil
	case v < int64(lo) || v > int64(hi):
		return 0, format.Inputf("%s: key %q: %d is not in %d to %d", m.path, key, v, lo, hi)
	}
	return int(v), nil
}

// number reads a float. A float32 becomes the float64 with the same shortest decimal form, so that 1e-5 stays 1e-5.
func (m meta) number(key string) (v float64, ok bool, err error) {
	switch x := m.kv[key].(type) {
	case nil:
		return 0, false, nil
	case float32:
		v, err = strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	case float64:
		v = x
	default:
		i, ok, ierr := m.integer(key)
		if ierr != nil || !ok {
			return 0, false, m.wrong(key, "a number")
		}
		v = float64(i)
	}
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false, format.Inputf("%s: key %q: %v is not a finite number", m.path, key, m.kv[key])
	}
	return v, true, nil
}

func (m meta) text(key string) (string, bool, error) {
	switch x := m.kv[key].(type) {
	case nil:
		return "", false, nil
	case string:
		return x, true, nil
	}
	return "", false, m.wrong(key, "a string")
}

func (m meta) flag(key string, def bool) (bool, error) {
	switch x := m.kv[key].(type) {
	case nil:
		return def, nil
	case bool:
		return x, nil
	}
	return false, m.wrong(key, "a boolean")
}

// array reads an array of one element type; ok is false where the key is absent.
func array[T any](m meta, key, want string) (v []T, ok bool, err error) {
	switch x := m.kv[key].(type) {
	case nil:
		return nil, false, nil
	case []T:
		return x, true, nil
	}
	return nil, false, m.wrong(key, "an array of "+want)
}
