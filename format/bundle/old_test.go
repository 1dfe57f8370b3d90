package bundle

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var makeV1 = flag.Bool("make-v1", false, "write testdata/v1 where it is not there")

// Bundles of every version that was ever released can be read. testdata/v1 was written by the first release and
// is never written again: when this fails, the reader is wrong.
func TestOldBundles(t *testing.T) {
	for name, align := range map[string]int{"trailer.np": 0, "pages.np": 4096} {
		dir := filepath.Join("testdata", "v1", name)
		if _, err := os.Stat(dir); err != nil && *makeV1 {
			from, m := work(t, align)
			if err := publish(t, from, m, dir); err != nil {
				t.Fatal(err)
			}
		}
		b, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(context.Background(), nil); err != nil {
			t.Error(err)
		}
		g := b.Manifest.Rows
		rows, err := os.ReadFile(b.Path(MemberRows))
		if err != nil {
			t.Fatal(err)
		}
		for l := range g.Layers {
			for n := range g.Neurons {
				if !bytes.Equal(rows[g.RecordOffset(l, n):][:g.RowBytes], rowsOf(g, l, n)) {
					t.Fatalf("%s: layer %d, neuron %d", name, l, n)
				}
			}
		}
		// what is written today is the same, as long as this is the version written
		if WriterVersion == Version1 {
			from, m := work(t, align)
			out := filepath.Join(t.TempDir(), "b.np")
			if err := publish(t, from, m, out); err != nil {
				t.Fatal(err)
			}
			if !same(tree(t, dir), tree(t, out)) {
				t.Errorf("%s: written today it is different", name)
			}
		}
	}
}
