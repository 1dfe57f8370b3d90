package bundle

import (
	"bytes"
	"os"
	"testing"
)

// Whatever the bytes: no panic, and what is accepted is within the limits and means the same when written again.
func FuzzHeader(f *testing.F) {
	f.Add(Header{1, 1, NewGeometry(4096, 14336, 32, 0)}.Encode())
	f.Add(Header{1, 9, NewGeometry(64, 96, 3, 4096)}.Encode())
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize {
			// without this no mutation would ever pass the checksum
			b = bytes.Clone(b)
			fixHeaderCRC(b)
		}
		h, err := DecodeHeader("f", b)
		if err != nil {
			return
		}
		g := h.Geometry
		if g.Stride > MaxStride || g.Layers > MaxLayers || g.Neurons > MaxNeurons || g.FileSize() < 0 || g.RecordOffset(g.Layers-1, g.Neurons-1)+int64(g.Stride) > g.FileSize() {
			t.Fatalf("accepted %+v", g)
		}
		if !bytes.Equal(h.Encode(), b[:HeaderSize]) {
			t.Fatalf("written again it differs: %+v", h)
		}
	})
}

func FuzzManifest(f *testing.F) {
	b := made(f, 0)
	data, err := os.ReadFile(b.Path(MemberManifest))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":{"reader":1,"writer":1}}`))
	f.Add([]byte(`{"format":{"reader":1,"writer":1,"required":["x"]}}`))
	f.Add([]byte(`{"format":null}`))
	f.Add([]byte(`{"a":[[[[[[{}]]]]]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest("m", data)
		if err != nil {
			return
		}
		enc, err := m.Encode()
		if err != nil {
			t.Fatalf("accepted but not written: %v", err)
		}
		m2, err := ParseManifest("m", enc)
		if err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		if again, _ := m2.Encode(); !bytes.Equal(enc, again) {
			t.Fatal("not stable")
		}
	})
}
