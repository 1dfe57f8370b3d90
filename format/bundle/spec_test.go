package bundle

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// specTable gives the rows of the first table behind a heading of SPEC.md, cells trimmed.
func specTable(t *testing.T, heading string) [][]string {
	t.Helper()
	data, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("SPEC.md has no heading %q", heading)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("no table behind %q", heading)
	}
	return rows[2:]
}

// checkLayout compares a table with fields, and that they tile size bytes without holes.
func checkLayout(t *testing.T, heading string, fields []field, size int) {
	rows := specTable(t, heading)
	if len(rows) != len(fields) {
		t.Fatalf("%s: SPEC.md has %d fields, the code %d", heading, len(rows), len(fields))
	}
	at := 0
	for i, f := range fields {
		want := []string{strconv.Itoa(f.off), strconv.Itoa(f.size), f.name}
		if !slices.Equal(rows[i][:3], want) {
			t.Errorf("%s, line %d: SPEC.md says %v, the code %v", heading, i+1, rows[i][:3], want)
		}
		if f.off != at {
			t.Errorf("%s: field %s at %d leaves a hole or overlaps: expected %d", heading, f.name, f.off, at)
		}
		at = f.off + f.size
	}
	if at != size {
		t.Errorf("%s: fields end at %d, want %d", heading, at, size)
	}
}

func TestSpecHeaderPage(t *testing.T) { checkLayout(t, "### Header page", headerFields, HeaderSize) }
func TestSpecTrailer(t *testing.T)    { checkLayout(t, "### Trailer", trailerFields, TrailerSize) }

// The table against the bytes: a field that is written must change exactly its own bytes.
func TestSpecHeaderBytes(t *testing.T) {
	base := Header{1, 1, NewGeometry(4096, 14336, 32, 0)}
	other := Header{2, 3, Geometry{"f16", 1, 2, 3, 4, 5, 6, false, 7, 8}}
	set := map[string]func(h *Header){
		"readVersion": func(h *Header) { h.ReadVersion = other.ReadVersion }, "writeVersion": func(h *Header) { h.WriteVersion = other.WriteVersion },
		"hidden": func(h *Header) { h.Geometry.Hidden = 1 }, "neurons": func(h *Header) { h.Geometry.Neurons = 2 }, "layers": func(h *Header) { h.Geometry.Layers = 3 },
		"rowBytes": func(h *Header) { h.Geometry.RowBytes = 4 }, "stride": func(h *Header) { h.Geometry.Stride = 5 }, "align": func(h *Header) { h.Geometry.Align = 6 },
		"flags": func(h *Header) { h.Geometry.Trailer = false }, "dataOffset": func(h *Header) { h.Geometry.DataOffset = 7 }, "layerStride": func(h *Header) { h.Geometry.LayerStride = 8 },
	}
	a := base.Encode()
	for _, row := range specTable(t, "### Header page") {
		f, ok := set[row[2]]
		if !ok {
			continue
		}
		delete(set, row[2])
		off, _ := strconv.Atoi(row[0])
		size, _ := strconv.Atoi(row[1])
		h := base
		f(&h)
		b := h.Encode()
		for i := range HeaderSize - 4 {
			if inside := i >= off && i < off+size; a[i] != b[i] && !inside {
				t.Errorf("%s also changes byte %d", row[2], i)
			}
		}
		if string(a[off:off+size]) == string(b[off:off+size]) {
			t.Errorf("%s does not change bytes %d to %d", row[2], off, off+size-1)
		}
	}
	if len(set) > 0 {
		t.Errorf("SPEC.md misses %v", reflect.ValueOf(set).MapKeys())
	}
}

func TestSpecLimits(t *testing.T) {
	want := map[string]int{"MaxLayers": MaxLayers, "MaxHidden": MaxHidden, "MaxNeurons": MaxNeurons, "MaxAlign": MaxAlign, "MaxStride": MaxStride,
		"MaxManifest": MaxManifest, "MaxMembers": MaxMembers, "MaxConfig": MaxConfig, "MaxTokenizer": MaxTokenizer}
	rows := specTable(t, "## 6. Limits")
	if len(rows) != len(want) {
		t.Errorf("SPEC.md lists %d limits, the code has %d", len(rows), len(want))
	}
	for _, r := range rows {
		if fmt.Sprint(want[r[0]]) != r[1] {
			t.Errorf("%s: SPEC.md says %s, the code %d", r[0], r[1], want[r[0]])
		}
	}
}

func TestSpecMembers(t *testing.T) {
	rows := specTable(t, "## 1. The directory")
	if len(rows) != len(members)+1 {
		t.Errorf("SPEC.md lists %d members, the code %d and the manifest", len(rows), len(members))
	}
	for _, r := range rows {
		m, ok := members[r[0]]
		if r[0] != MemberManifest && (!ok || m.required != (r[1] == "yes")) {
			t.Errorf("%s: SPEC.md says required %s; the code knows it: %v, required %v", r[0], r[1], ok, m.required)
		}
	}
}

func TestSpecVersions(t *testing.T) {
	rows := specTable(t, "## 7. Versions")
	if len(rows) != int(ReaderVersion) {
		t.Errorf("SPEC.md describes %d versions, the code reads %d", len(rows), ReaderVersion)
	}
	for v := Version(-1); v < 70; v++ {
		if v.Known() != (v >= 1 && int(v) <= len(rows)) {
			t.Errorf("version %d: known is %v", v, v.Known())
		}
	}
}

// Every key of the manifest's types is in the table and the other way round.
func TestSpecManifestKeys(t *testing.T) {
	var want []string
	var walk func(prefix string, ty reflect.Type)
	walk = func(prefix string, ty reflect.Type) {
		for i := range ty.NumField() {
			f := ty.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			ft := f.Type
			for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			inner := ft.Kind() == reflect.Struct && ft.PkgPath() == ty.PkgPath()
			if !inner || f.Type.Kind() != reflect.Struct {
				want = append(want, prefix+name)
			}
			if inner {
				walk(prefix+name+".", ft)
			}
		}
	}
	walk("", reflect.TypeOf(Manifest{}))
	var got []string
	for _, r := range specTable(t, "## 5. manifest.json") {
		got = append(got, r[0])
	}
	if !slices.Equal(got, want) {
		t.Errorf("SPEC.md and the code differ:\nspec %v\ncode %v", got, want)
	}
}

// The numbers that the text gives for a known model.
func TestSpecExamples(t *testing.T) {
	if g := NewGeometry(4096, 14336, 32, 0); g.Stride != 25088 || g.Align != 512 || g.LayerStride != 359661568 || g.DataOffset != 4096 {
		t.Errorf("with trailers: %+v", g)
	}
	if g := NewGeometry(4096, 14336, 32, 4096); g.Stride != 24576 || g.Align != 4096 || g.Trailer {
		t.Errorf("without: %+v", g)
	}
	data, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`25,088\s+and 24,576`).Match(data) {
		t.Error("SPEC.md does not give the strides of H = 4,096")
	}
	var b [4]byte
	for i := range b {
		b[i] = byte(uint32(trailerMagic) >> (8 * i))
	}
	if string(b[:]) != "NREC" || Magic != "NPROWS\r\n" {
		t.Errorf("magics are %q and %q", b, Magic)
	}
}
