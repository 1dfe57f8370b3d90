package format

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                 "",
		` [1,"a",{"a":{"a":[{"a":null}]}}] `: "",
		`7`:                                  "",
		`{"a":{"b":1},"b":{"b":1}}`:          "",
		`{"a":1,"a":2}`:                      `duplicate key "a"`,
		`{"x":{"a":1,"b":[],"a":2}}`:         `duplicate key "a" in "x"`,
		`[{"a":1,"\u0061":2}]`:               `duplicate key "a"`,
		`{"a":{},"a":{}}`:                    `duplicate key "a"`,
		`{"a":[],"a":[]}`:                    `duplicate key "a"`,
		`{} {}`:                              "data after the end",
		`{},`:                                "data after the end",
		``:                                   "ends too early",
		`{"a":`:                              "ends too early",
		`{"a" 1}`:                            "syntax error",
		`[1,]`:                               "syntax error",
		`{"a":1,}`:                           "syntax error",
		`{"a":NaN}`:                          "syntax error",
		"\"\xff\"":                           "not UTF-8",
		strings.Repeat("[", 65):              "deeper than 64",
		strings.Repeat("[", 64) + strings.Repeat("]", 64): "",
	} {
		err := CheckJSON([]byte(in))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", in, err, want)
		}
	}
	for _, in := range []string{`[]`, `null`, `1`} {
		if _, err := JSONObject([]byte(in)); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// FuzzJSON: what CheckJSON accepts, encoding/json accepts, and no key is lost in a map.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}]}`, `{"a":1,"a":2}`, `[`, `{},`, `"x"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := CheckJSON(data)
		if err == nil && !json.Valid(data) {
			t.Fatalf("accepted, but not valid")
		}
		if err != nil && strings.Contains(err.Error(), "syntax") && json.Valid(data) {
			t.Fatalf("valid, but %v", err)
		}
	})
}
