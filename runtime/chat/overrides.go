package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlstructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// What templates may use. The engine's own sets are global and changeable, so every template gets copies.
var (
	tags    = []string{"for", "if", "set", "macro", "raw", "with", "do", "break", "continue", "filter"}
	filters = []string{
		"abs", "attr", "capitalize", "default", "d", "dictsort", "first", "float", "int", "join", "last", "length", "count", "lower", "map",
		"max", "min", "rejectattr", "reject", "reverse", "round", "safe", "selectattr", "select", "sort", "string", "sum", "title", "trim",
		"unique", "upper", "e", "escape", "groupby", "truncate", "wordcount",
	}
	ownFilters    = []string{"tojson", "items", "replace", "list"}
	stringMethods = []string{
		"capitalize", "casefold", "count", "endswith", "find", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric",
		"isspace", "istitle", "isupper", "join", "lower", "lstrip", "removeprefix", "removesuffix", "rfind", "rstrip", "startswith", "strip",
		"swapcase", "title", "upper",
	}
	listMethods = []string{"partition", "rpartition", "rsplit", "split", "splitlines"} // of strings; they return lists
	dictMethods = []string{"get", "copy"}
)

func newEnvironment() *exec.Environment {
	structures := map[string]parser.ControlStructureParser{}
	for _, name := range tags {
		if p, ok := controlstructures.All.Get(name); ok {
			structures[name] = fence(name, p)
		}
	}
	filter := map[string]exec.FilterFunction{"tojson": filterJSON, "items": filterItems, "replace": filterReplace}
	for _, name := range filters {
		if f, ok := builtins.Filters.Get(name); ok {
			filter[name] = f
		}
	}
	str := map[string]exec.Method[string]{"replace": methodReplace}
	for _, name := range stringMethods {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			str[name] = m
		}
	}
	for _, name := range listMethods {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			str[name] = func(self string, v *exec.Value, args *exec.VarArgs) (any, error) {
				result, err := m(self, v, args)
				if err != nil {
					return nil, err
				}
				return asList(exec.AsValue(result)), nil
			}
		}
	}
	if f, ok := builtins.Filters.Get("list"); ok {
		filter["list"] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
			out := f(e, in, args)
			if out.IsError() || !out.IsList() {
				return out
			}
			return exec.AsValue(asList(out))
		}
	}
	dict := map[string]exec.Method[map[string]any]{
		"items": func(_ map[string]any, v *exec.Value, _ *exec.VarArgs) (any, error) { return pairList(v), nil },
		"keys": func(_ map[string]any, v *exec.Value, _ *exec.VarArgs) (any, error) {
			var keys []any
			for _, p := range orderedItems(v) {
				keys = append(keys, p.Key.Interface())
			}
			return keys, nil
		},
		"values": func(_ map[string]any, v *exec.Value, _ *exec.VarArgs) (any, error) {
			var values []any
			for _, p := range orderedItems(v) {
				values = append(values, p.Value.Interface())
			}
			return values, nil
		},
	}
	for _, name := range dictMethods {
		if m, ok := builtins.Methods.Dict.Get(name); ok {
			dict[name] = m
		}
	}
	globals := exec.EmptyContext()
	for _, name := range []string{"namespace", "dict"} {
		if f, ok := builtins.GlobalFunctions.Get(name); ok {
			globals.Set(name, f)
		}
	}
	globals.Set("range", rangeList)
	return &exec.Environment{
		Filters:           exec.NewFilterSet(filter),
		ControlStructures: exec.NewControlStructureSet(structures),
		Tests:             exec.NewTestSet(map[string]exec.TestFunction{}).Update(builtins.Tests),
		Context:           globals,
		Methods: exec.Methods{
			Bool: builtins.Methods.Bool, Int: builtins.Methods.Int, Float: builtins.Methods.Float, List: builtins.Methods.List,
			Str: exec.NewMethodSet(str), Dict: exec.NewMethodSet(dict),
		},
	}
}

// list is a list whose items can be counted from the end, all of them: the engine misses the one at -len.
type list []any

func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

func asList(v *exec.Value) list {
	l := list{}
	v.Iterate(func(_, _ int, e, _ *exec.Value) bool {
		l = append(l, e.Interface())
		return true
	}, func() {})
	return l
}

// rangeList is range without a goroutine behind it, and with an end.
func rangeList(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	start, stop, step := 0, 0, 1
	for _, a := range args.Args {
		if !a.IsInteger() {
			return exec.AsValue(fmt.Errorf("range takes whole numbers"))
		}
	}
	switch a := args.Args; len(a) {
	case 1:
		stop = a[0].Integer()
	case 2:
		start, stop = a[0].Integer(), a[1].Integer()
	case 3:
		start, stop, step = a[0].Integer(), a[1].Integer(), a[2].Integer()
	default:
		return exec.AsValue(fmt.Errorf("range takes one to three numbers"))
	}
	if step == 0 {
		return exec.AsValue(fmt.Errorf("range with step 0"))
	}
	all := list{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(all) == maxRange {
			return exec.AsValue(fmt.Errorf("range of more than %d numbers", maxRange))
		}
		all = append(all, i)
	}
	return exec.AsValue(all)
}

// orderedItems returns a mapping's pairs in the order in which Python would have them: literals as written, messages as role, content.
func orderedItems(v *exec.Value) []*exec.Pair {
	if d, ok := v.Interface().(*exec.Dict); ok {
		return d.Pairs
	}
	rank := func(p *exec.Pair) int {
		switch p.Key.String() {
		case "role":
			return 0
		case "content":
			return 1
		}
		return 2
	}
	pairs := v.Items()
	slices.SortStableFunc(pairs, func(a, b *exec.Pair) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	return pairs
}

func pairList(v *exec.Value) []any {
	all := []any{}
	for _, p := range orderedItems(v) {
		all = append(all, []any{p.Key.Interface(), p.Value.Interface()})
	}
	return all
}

func filterItems(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	switch {
	case in.IsError():
		return in
	case in.IsNil():
		return exec.AsValue([]any{})
	case !in.IsDict():
		return exec.AsValue(fmt.Errorf("items needs a mapping"))
	}
	return exec.AsValue(pairList(in))
}

func replaceText(s string, args *exec.VarArgs) (string, error) {
	if len(args.Args) < 2 || len(args.Args) > 3 {
		return "", fmt.Errorf("replace takes two or three arguments")
	}
	old, with, count := args.Args[0].String(), args.Args[1].String(), -1
	if len(args.Args) == 3 && !args.Args[2].IsNil() {
		count = args.Args[2].Integer()
	}
	if n := strings.Count(s, old); len(with) > 0 && n > maxValue/len(with) {
		return "", fmt.Errorf("replace makes more than %d bytes", maxValue)
	}
	return strings.Replace(s, old, with, count), nil
}

func methodReplace(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	return replaceText(self, args)
}

func filterReplace(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	s, err := replaceText(in.String(), args)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(s)
}

// filterJSON writes as json.dumps(ensure_ascii=False) does: spaces after commas and colons, no HTML escapes, keys in their own order.
func filterJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	indent := -1
	if v := args.KwArgs["indent"]; v != nil && !v.IsNil() {
		indent = v.Integer()
	} else if len(args.Args) > 0 && args.Args[0].IsInteger() {
		indent = args.Args[0].Integer()
	}
	if indent > 16 {
		return exec.AsValue(fmt.Errorf("tojson: indent %d is more than 16", indent))
	}
	var b strings.Builder
	if err := writeJSON(&b, in, indent, 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(b.String())
}

func writeJSON(b *strings.Builder, v *exec.Value, indent, depth int) error {
	if depth > 64 || b.Len() > maxValue {
		return fmt.Errorf("tojson: the value is too deep or too large")
	}
	line := func(depth int) {
		if indent >= 0 {
			b.WriteByte('\n')
			b.WriteString(strings.Repeat(" ", indent*depth))
		}
	}
	comma := func() {
		if indent >= 0 {
			b.WriteByte(',')
		} else {
			b.WriteString(", ")
		}
	}
	switch {
	case v.IsNil():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		b.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("tojson: %g", f)
		}
		s := strconv.FormatFloat(f, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		b.WriteString(s)
	case v.IsString():
		writeJSONString(b, v.String())
	case v.IsList():
		n, err := 0, error(nil)
		b.WriteByte('[')
		v.Iterate(func(_, _ int, e, _ *exec.Value) bool {
			if n++; n > 1 {
				comma()
			}
			line(depth + 1)
			err = writeJSON(b, e, indent, depth+1)
			return err == nil
		}, func() {})
		if err != nil {
			return err
		}
		if n > 0 {
			line(depth)
		}
		b.WriteByte(']')
	case v.IsDict():
		pairs := orderedItems(v)
		b.WriteByte('{')
		for i, p := range pairs {
			if i > 0 {
				comma()
			}
			line(depth + 1)
			writeJSONString(b, p.Key.String())
			b.WriteString(": ")
			if err := writeJSON(b, p.Value, indent, depth+1); err != nil {
				return err
			}
		}
		if len(pairs) > 0 {
			line(depth)
		}
		b.WriteByte('}')
	default:
		return fmt.Errorf("tojson: a value that has no JSON")
	}
	return nil
}

func writeJSONString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r < 0x20 {
				fmt.Fprintf(b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}

var directives = map[string]string{
	"Y": "2006", "y": "06", "m": "01", "-m": "1", "d": "02", "-d": "2", "e": "_2", "B": "January", "b": "Jan", "h": "Jan", "A": "Monday", "a": "Mon",
	"H": "15", "I": "03", "-I": "3", "M": "04", "-M": "4", "S": "05", "-S": "5", "p": "PM", "j": "002", "Z": "MST", "z": "-0700", "F": "2006-01-02",
	"T": "15:04:05", "D": "01/02/06", "R": "15:04",
}

// strftime formats a time by Python's directives.
func strftime(t time.Time, f string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			b.WriteByte(f[i])
			continue
		}
		i++
		n := 1
		if i < len(f) && f[i] == '-' {
			n = 2
		}
		if i+n > len(f) {
			return "", fmt.Errorf("strftime_now: %q ends inside a directive", f)
		}
		d := f[i : i+n]
		i += n - 1
		if d == "%" {
			b.WriteByte('%')
			continue
		}
		layout, ok := directives[d]
		if !ok {
			return "", fmt.Errorf("strftime_now: directive %%%s is not supported", d)
		}
		b.WriteString(t.Format(layout))
	}
	return b.String(), nil
}
