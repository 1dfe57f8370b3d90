package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"neuroprefetcher/runtime/sample"
)

// What a request may ask for at most.
const (
	maxChoices   = 256     // answers of one request: prompts × n
	maxStops     = 4       // as OpenAI's
	maxStopBytes = 1024    // of one stop string: the end of the text is compared with each for every token
	maxTop       = 20      // rivals of a token
	maxBias      = 4096    // entries of logit_bias
	maxRanked    = 1 << 20 // log-probabilities of one answer: each is 16 bytes here and 30 or so on the wire
	bodyTime     = time.Minute
)

// readBody reads a request's body within limit bytes and a minute.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *apiError) {
	// A deadline for the body alone: one on the whole request would end long answers.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return nil, failure(http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large", "the request's body is larger than %d bytes", limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, failure(http.StatusRequestTimeout, "invalid_request_error", "request_timeout", "the request's body did not arrive within %v", bodyTime)
	}
	if err != nil {
		return nil, badRequest("", "the request's body could not be read: %v", err)
	}
	_ = rc.SetReadDeadline(time.Time{})
	return b, nil
}

// fields are the members of a request that are not read yet. The first error stays.
type fields struct {
	m   map[string]json.RawMessage
	at  string // where they are: "" or "messages[3]."
	err *apiError
}

// parseFields reads a JSON object; null members are as good as absent ones.
func parseFields(body []byte) (*fields, *apiError) {
	if !utf8.Valid(body) {
		return nil, badRequest("", "the request's body is not UTF-8 text")
	}
	if i := loneSurrogate(body); i >= 0 {
		return nil, badRequest("", "the request's body holds half of a surrogate pair at byte %d, which is no character", i)
	}
	f := &fields{}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&f.m); err != nil {
		return nil, badRequest("", "the request's body is not a JSON object: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, badRequest("", "the request's body goes on behind its JSON object")
	}
	if f.m == nil {
		return nil, badRequest("", "the request's body is not a JSON object: it is null")
	}
	f.dropNulls()
	return f, nil
}

func (f *fields) dropNulls() {
	for k, v := range f.m {
		if string(v) == "null" {
			delete(f.m, k)
		}
	}
}

// loneSurrogate returns where an escaped half of a pair stands alone, or -1. Go's decoder would make it U+FFFD.
func loneSurrogate(b []byte) int {
	hex := func(i int) int {
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return int(v)
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		u := hex(i)
		switch {
		case u >= 0xD800 && u < 0xDC00:
			if v := hex(i + 6); v < 0xDC00 || v > 0xDFFF {
				return i
			}
			i += 11
		case u >= 0xDC00 && u <= 0xDFFF:
			return i
		default:
			i++ // the escaped character
		}
	}
	return -1
}

func (f *fields) fail(name, want string) {
	if f.err == nil {
		f.err = badRequest(f.at+name, "%s must be %s", f.at+name, want)
	}
}

// read decodes a member, if it is there, and takes it out. want says what it must be.
func (f *fields) read(name, want string, dst any) bool {
	raw, ok := f.m[name]
	if !ok {
		return false
	}
	delete(f.m, name)
	if err := json.Unmarshal(raw, dst); err != nil {
		f.fail(name, want)
		return false
	}
	return true
}

func (f *fields) str(name string) (s string, ok bool) { ok = f.read(name, "a string", &s); return }
func (f *fields) flag(name string, def bool) bool {
	b := def
	if f.read(name, "true or false", &b) {
		return b
	}
	return def
}

func (f *fields) num(name string, def, lo, hi float64) float64 {
	v := def
	want := "a number from " + strconv.FormatFloat(lo, 'g', -1, 64) + " to " + strconv.FormatFloat(hi, 'g', -1, 64)
	if !f.read(name, want, &v) {
		return def
	}
	if !(v >= lo && v <= hi) {
		f.fail(name, want)
		return def
	}
	return v
}

func (f *fields) int(name string, def, lo, hi int) int {
	v := def
	want := "a whole number from " + strconv.Itoa(lo) + " to " + strconv.Itoa(hi)
	if !f.read(name, want, &v) {
		return def
	}
	if v < lo || v > hi {
		f.fail(name, want)
		return def
	}
	return v
}

// only takes a member out whose value must be one of those that change nothing here.
func (f *fields) only(name string, values ...string) {
	raw, ok := f.m[name]
	if !ok {
		return
	}
	var c bytes.Buffer
	if json.Compact(&c, raw) == nil && slices.Contains(values, c.String()) {
		delete(f.m, name)
	}
}

// end reports the first error, else the first member that nobody read.
func (f *fields) end() *apiError {
	if f.err != nil {
		return f.err
	}
	var left []string
	for k := range f.m {
		left = append(left, k)
	}
	if len(left) == 0 {
		return nil
	}
	name := slices.Min(left)
	if len(name) > 80 {
		name = string([]rune(name)[:20]) + "…"
	}
	return badRequest(f.at+name, "%s is not supported by this server", f.at+name)
}

// params are what both endpoints share.
type params struct {
	model               string
	stream, withUsage   bool
	n                   int
	maxTokens           int // -1: as many as the context holds
	sample              sample.Params
	presence, frequency float64
	bias                map[int32]float32
	stops               []string
	top                 int // rivals of each token; -1: no log-probabilities
	ignoreEOS           bool
	cache               bool // keep what the cache holds of the prompt
}

// readParams reads the shared members.
func readParams(f *fields, vocab, defaultMax, minMax int, seed func() uint64) params {
	p := params{top: -1, maxTokens: defaultMax}
	p.model, _ = f.str("model")
	p.stream = f.flag("stream", false)
	if raw, ok := f.m["stream_options"]; ok {
		delete(f.m, "stream_options")
		o := &fields{at: "stream_options."}
		if json.Unmarshal(raw, &o.m) != nil {
			f.fail("stream_options", "an object")
		}
		o.dropNulls()
		p.withUsage = o.flag("include_usage", false)
		o.only("include_obfuscation", "false")
		if err := o.end(); err != nil && f.err == nil {
			f.err = err
		}
		if !p.stream {
			f.fail("stream_options", "absent unless stream is true")
		}
	}
	p.n = f.int("n", 1, 1, maxChoices)
	both := 0
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if _, ok := f.m[name]; !ok {
			continue
		}
		v := f.int(name, defaultMax, minMax, math.MaxInt32)
		if both++; both == 2 && v != p.maxTokens {
			f.fail(name, "the same as max_tokens when both are given")
		}
		p.maxTokens = v
	}
	p.sample = sample.Params{Temp: f.num("temperature", 1, 0, 100), TopP: f.num("top_p", 1, 0, 1), MinP: f.num("min_p", 0, 0, 1),
		TopK: max(0, f.int("top_k", 0, -1, math.MaxInt32)), RepetitionPenalty: f.num("repetition_penalty", 1, 0.001, 1000)}
	if p.sample.TopP == 0 { // the sampler's 0 is "off"; here it asks for the likeliest token alone
		p.sample.TopP = 1e-12
	}
	p.presence, p.frequency = f.num("presence_penalty", 0, -2, 2), f.num("frequency_penalty", 0, -2, 2)
	var s int64
	if f.read("seed", "a whole number", &s) {
		p.sample.Seed = uint64(s)
	} else {
		p.sample.Seed = seed()
	}
	p.stops = f.stops()
	p.bias = f.bias(vocab)
	p.ignoreEOS = f.flag("ignore_eos", false)
	p.cache = f.flag("cache_prompt", true)
	var user string
	f.read("user", "a string", &user) // names the caller to the operator; changes nothing
	return p
}

// stops reads null, a string, or up to four; empty ones stop nothing.
func (f *fields) stops() []string {
	raw, ok := f.m["stop"]
	if !ok {
		return nil
	}
	delete(f.m, "stop")
	var one string
	var all []string
	if json.Unmarshal(raw, &one) == nil {
		all = []string{one}
	} else if json.Unmarshal(raw, &all) != nil {
		f.fail("stop", "a string or a list of strings")
	}
	if len(all) > maxStops {
		f.fail("stop", "at most "+strconv.Itoa(maxStops)+" strings")
	}
	for _, s := range all {
		if len(s) > maxStopBytes {
			f.fail("stop", "strings of at most "+strconv.Itoa(maxStopBytes)+" bytes")
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

func (f *fields) bias(vocab int) map[int32]float32 {
	var in map[string]float64
	if !f.read("logit_bias", "an object of token ids and numbers", &in) || len(in) == 0 {
		return nil
	}
	if len(in) > maxBias {
		f.fail("logit_bias", "at most "+strconv.Itoa(maxBias)+" tokens")
	}
	out := map[int32]float32{}
	for k, v := range in {
		id, err := strconv.Atoi(k)
		if err != nil || id < 0 || id >= vocab {
			f.fail("logit_bias", "an object whose names are token ids from 0 to "+strconv.Itoa(vocab-1))
		}
		if !(v >= -100 && v <= 100) {
			f.fail("logit_bias", "an object of numbers from -100 to 100")
		}
		out[int32(id)] = float32(v)
	}
	return out
}
