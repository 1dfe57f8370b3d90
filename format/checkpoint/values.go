package checkpoint

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"neuroprefetcher/format"
)

// object reads the values of one JSON object. An explicit null is the same as an absent key, everywhere.
// The first error stays, so that a run of reads is checked once at its end.
type object struct {
	file   string
	prefix string // "rope_scaling." inside that block, for messages
	m      map[string]json.RawMessage
	err    error
}

func newObject(file string, data []byte) (*object, error) {
	m, err := format.JSONObject(data)
	if err != nil {
		return nil, format.Inputf("%s: %w", file, err)
	}
	return &object{file: file, m: m}, nil
}

func (o *object) fail(key, f string, a ...any) {
	if o.err == nil {
		o.err = format.Inputf("%s: %s%s "+f, append([]any{o.file, o.prefix, key}, a...)...)
	}
}

// value is the raw value of a key that is given, that is: present and not null.
func (o *object) value(key string) (json.RawMessage, bool) {
	v, ok := o.m[key]
	if !ok || bytes.Equal(bytes.TrimSpace(v), []byte("null")) {
		return nil, false
	}
	return v, true
}

func (o *object) has(key string) bool {
	_, ok := o.value(key)
	return ok
}

// keys lists the given keys, sorted.
func (o *object) keys() []string {
	var out []string
	for k := range o.m {
		if o.has(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// whole reads a whole number in [lo, hi]; 64.0 is one too.
func (o *object) whole(key string, def, lo, hi int) int {
	v, ok := o.value(key)
	if !ok {
		return def
	}
	n, ok := wholeNumber(v)
	if !ok {
		o.fail(key, "is %s, not a whole number", short(v))
		return def
	}
	if n < int64(lo) || n > int64(hi) {
		o.fail(key, "is %d, want %d to %d", n, lo, hi)
		return def
	}
	return int(n)
}

// need is whole for a key that must be given.
func (o *object) need(key string, lo, hi int) int {
	if !o.has(key) {
		o.fail(key, "is missing")
		return lo
	}
	return o.whole(key, lo, lo, hi)
}

// real reads a finite number.
func (o *object) real(key string) (float64, bool) {
	v, ok := o.value(key)
	if !ok {
		return 0, false
	}
	var f float64
	if err := json.Unmarshal(v, &f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		o.fail(key, "is %s, not a number", short(v))
		return 0, false
	}
	return f, true
}

func (o *object) flag(key string) (val, given bool) {
	v, ok := o.value(key)
	if !ok {
		return false, false
	}
	if err := json.Unmarshal(v, &val); err != nil {
		o.fail(key, "is %s, not true or false", short(v))
		return false, false
	}
	return val, true
}

func (o *object) text(key string) (s string, given bool) {
	v, ok := o.value(key)
	if !ok {
		return "", false
	}
	if err := json.Unmarshal(v, &s); err != nil {
		o.fail(key, "is %s, not a string", short(v))
		return "", false
	}
	return s, true
}

// sub is a nested object, or nil if it is not given.
func (o *object) sub(key string) *object {
	v, ok := o.value(key)
	if !ok {
		return nil
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(v, &m); err != nil {
		o.fail(key, "is %s, not an object", short(v))
		return nil
	}
	return &object{file: o.file, prefix: o.prefix + key + ".", m: m}
}

// ids reads token ids: one number or a list of them.
func (o *object) ids(key string) []int {
	v, ok := o.value(key)
	if !ok {
		return nil
	}
	list := []json.RawMessage{v}
	if bytes.HasPrefix(bytes.TrimSpace(v), []byte("[")) {
		if err := json.Unmarshal(v, &list); err != nil {
			o.fail(key, "is %s, not a list of token ids", short(v))
			return nil
		}
	}
	out := make([]int, 0, len(list))
	for _, e := range list {
		n, ok := wholeNumber(e)
		if !ok || n != int64(int32(n)) {
			o.fail(key, "is %s, not a token id or a list of them", short(v))
			return nil
		}
		out = append(out, int(n))
	}
	return out
}

// wholeNumber accepts 64, 64.0 and 6.4e1, but neither "64" nor null.
func wholeNumber(v json.RawMessage) (int64, bool) {
	s := string(bytes.TrimSpace(v))
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	var f float64
	if s == "null" || json.Unmarshal(v, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// short shows a raw value in a message of one line.
func short(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		b.Write(v)
	}
	s := b.String()
	if len(s) > 60 {
		return strconv.QuoteToGraphic(s[:60]) + "..."
	}
	return s
}
