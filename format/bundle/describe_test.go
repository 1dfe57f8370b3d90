package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The annotated bytes of the first version's files, as text that a reader can check against SPEC.md. A change of
// the format shows here as a readable difference.
func TestDescribeBytesGolden(t *testing.T) {
	for _, name := range []string{"trailer", "pages"} {
		var b bytes.Buffer
		if err := DescribeBytes(&b, filepath.Join("testdata", "v1", name+".np", MemberRows)); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "v1", name+".txt")
		if _, err := os.Stat(golden); err != nil && *makeV1 {
			if err := os.WriteFile(golden, b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: now\n%s", golden, b.String())
		}
	}
}

// Every field and member is shown, and hurt files are shown as far as they go.
func TestDescribe(t *testing.T) {
	b := made(t, 0)
	var out bytes.Buffer
	if err := Describe(&out, b); err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Manifest.Members {
		if !strings.Contains(out.String(), m.Name) || !strings.Contains(out.String(), m.SHA256) {
			t.Errorf("%s is not shown", m.Name)
		}
	}
	out.Reset()
	if err := DescribeBytes(&out, b.Path(MemberRows)); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(headerFields, trailerFields...) {
		if !strings.Contains(out.String(), f.name) {
			t.Errorf("field %s is not shown", f.name)
		}
	}
	rows := b.Path(MemberRows)
	for _, size := range []int64{0, 1, 20, 4095, 4096, 5000, 30000} {
		if err := os.Truncate(rows, size); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := DescribeBytes(&out, rows); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if !strings.Contains(out.String(), "# ") {
			t.Errorf("%d bytes: no complaint", size)
		}
		if err := os.Truncate(rows, 60000); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	b = made(t, 0)
	flip(MemberRows, b.Manifest.Rows.RecordOffset(1, 0)+8)(t, b)
	if err := DescribeRecord(&out, b.Path(MemberRows), b.Manifest.Rows, 1, 0); err != nil || !strings.Contains(out.String(), "# damaged: rows.np: layer 1, neuron 0") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, c := range [][2]int{{-1, 0}, {3, 0}, {0, 20}, {0, -1}} {
		if err := DescribeRecord(&out, b.Path(MemberRows), b.Manifest.Rows, c[0], c[1]); err == nil {
			t.Errorf("record %v is shown", c)
		}
	}
}
