package chat

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	controlstructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"

	"neuroprefetcher/format"
)

// Fences. The engine itself has none. Multiplication and the filters that pad are refused, since they make gigabytes from a few characters.
const (
	maxSource = 256 << 10       // bytes of a template; Llama-3.1's is 4 KiB, the largest known about 20 KiB
	maxTag    = 8 << 10         // bytes between {{ and }}: the engine parses and evaluates by recursion
	maxNest   = 64              // brackets open at once in a tag
	maxBlocks = 256             // blocks open at once
	maxOutput = 64 << 20        // bytes written, those into variables included
	maxValue  = 16 << 20        // bytes of a string or items of a list that is kept in a variable
	maxRange  = 10_000          // numbers in a range
	maxSteps  = 2_000_000       // tags executed
	maxDepth  = 64              // macro calls inside each other
	maxTime   = 2 * time.Second // of one rendering
	guardKey  = "\x00guard"     // no template can name it
)

// guard watches one rendering.
type guard struct {
	deadline time.Time
	steps    int
	depth    int
	written  int
	raised   *RaisedError
	failed   error
}

func newGuard() *guard { return &guard{deadline: time.Now().Add(maxTime)} }

func (g *guard) fail(f string, a ...any) error {
	if g.failed == nil {
		g.failed = fmt.Errorf(f, a...)
	}
	return g.failed
}

func (g *guard) step() error {
	if g.steps++; g.steps > maxSteps {
		return g.fail("it runs more than %d steps", maxSteps)
	}
	if g.steps%64 == 0 && time.Now().After(g.deadline) {
		return g.fail("it runs longer than %v", maxTime)
	}
	if g.failed != nil {
		return g.failed
	}
	return nil
}

func guardOf(r *exec.Renderer) *guard {
	v, _ := r.Environment.Context.Get(guardKey)
	g, ok := v.(*guard)
	if !ok {
		return newGuard()
	}
	return g
}

// limitWriter counts everything that a template writes, also what it writes into a variable.
type limitWriter struct {
	w io.Writer
	g *guard
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if l.g.written += len(p); l.g.written > maxOutput {
		return 0, l.g.fail("it writes more than %d bytes", maxOutput)
	}
	if err := l.g.step(); err != nil {
		return 0, err
	}
	return l.w.Write(p)
}

// fenced is a control structure that is watched.
type fenced struct {
	nodes.ControlStructure
	name   string // of the tag
	target string // of set and macro: the variable
}

func (f *fenced) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	g := guardOf(r)
	if err := g.step(); err != nil {
		return err
	}
	if _, ok := r.Output.(*limitWriter); !ok {
		plain := r.Output
		r.Output = &limitWriter{plain, g}
		defer func() { r.Output = plain }()
	}
	if err := f.ControlStructure.(exec.ControlStructure).Execute(r, tag); err != nil {
		return err
	}
	value, _ := r.Environment.Context.Get(f.target)
	switch f.name {
	case "set":
		if n := sizeOf(value, 0); n > maxValue {
			return g.fail("variable %s grows over %d bytes", f.target, maxValue)
		}
	case "macro":
		if call, ok := value.(exec.Macro); ok {
			r.Environment.Context.Set(f.target, exec.Macro(func(args *exec.VarArgs) *exec.Value {
				if g.depth >= maxDepth {
					return exec.AsValue(g.fail("macro %s calls itself", f.target))
				}
				if err := g.step(); err != nil {
					return exec.AsValue(err)
				}
				g.depth++
				defer func() { g.depth-- }()
				return call(args)
			}))
		}
	}
	return nil
}

// sizeOf estimates what a value holds: bytes of strings, 16 for anything else.
func sizeOf(v any, depth int) int {
	if depth > 4 {
		return 16
	}
	total := 16
	switch v := v.(type) {
	case string:
		return len(v)
	case *exec.Value:
		if v != nil && !v.IsNil() {
			return sizeOf(v.Interface(), depth+1)
		}
	case map[string]any:
		for _, e := range v {
			total += sizeOf(e, depth+1)
		}
	case []any:
		for _, e := range v {
			total += sizeOf(e, depth+1)
		}
	case list:
		for _, e := range v {
			total += sizeOf(e, depth+1)
		}
	case exec.ValuesList:
		for _, e := range v {
			total += sizeOf(e, depth+1)
		}
	}
	return total
}

// fence wraps the parser of a control structure.
func fence(name string, parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		target := ""
		if t := args.Current(tokens.Name); t != nil {
			target = t.Val
		}
		c, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		if f, ok := c.(*controlstructures.ForControlStructure); ok && f.Recursive {
			return nil, fmt.Errorf("recursive loops are not supported")
		}
		return &fenced{c, name, target}, nil
	}
}

// checkSource refuses what the engine could not survive: it parses by recursion and multiplies strings.
func checkSource(source string) error {
	if len(source) > maxSource {
		return format.Inputf("chat template: %d bytes are more than the limit of %d", len(source), maxSource)
	}
	blocks := 0
	for i := 0; i+1 < len(source); {
		if source[i] != '{' {
			i++
			continue
		}
		kind := source[i+1]
		if kind == '#' {
			end := strings.Index(source[i+2:], "#}")
			if end < 0 {
				return format.Inputf("chat template: a comment does not end")
			}
			i += 2 + end + 2
			continue
		}
		if kind != '{' && kind != '%' {
			i++
			continue
		}
		n, err := checkTag(source[i+2:], kind)
		if err != nil {
			return err
		}
		if kind == '%' {
			name := strings.TrimLeft(source[i+2:i+2+n], "-+ \t\r\n")
			switch {
			case strings.HasPrefix(name, "end"):
				blocks--
			case strings.HasPrefix(name, "if"), strings.HasPrefix(name, "for"), strings.HasPrefix(name, "macro"), strings.HasPrefix(name, "filter"),
				strings.HasPrefix(name, "with"), strings.HasPrefix(name, "set") && !strings.Contains(name, "="):
				if blocks++; blocks > maxBlocks {
					return format.Inputf("chat template: more than %d blocks inside each other", maxBlocks)
				}
			}
		}
		i += 2 + n
	}
	return nil
}

// checkTag looks at the expression that s starts with and returns its length, the end mark included.
func checkTag(s string, kind byte) (int, error) {
	end := "}}"
	if kind == '%' {
		end = "%}"
	}
	quote, depth := byte(0), 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if i > maxTag {
			return 0, format.Inputf("chat template: an expression is longer than %d bytes", maxTag)
		}
		switch {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case depth <= 0 && strings.HasPrefix(s[i:], end):
			return i + 2, nil
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			if depth++; depth > maxNest {
				return 0, format.Inputf("chat template: more than %d brackets inside each other", maxNest)
			}
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == '|':
			name := strings.TrimLeft(s[i+1:], " \t\r\n")
			n := 0
			for n < len(name) && (name[n] == '_' || name[n] >= 'a' && name[n] <= 'z' || name[n] >= 'A' && name[n] <= 'Z') {
				n++
			}
			if name = name[:n]; !slices.Contains(filters, name) && !slices.Contains(ownFilters, name) {
				return 0, format.Inputf("chat template: the filter %.40q is not supported", name)
			}
		case c == '*':
			return 0, format.Inputf("chat template: the operator * is not supported")
		}
	}
	return 0, format.Inputf("chat template: an expression does not end")
}
