package bundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"neuroprefetcher/format"
)

// both runs a test for records with trailers and with a side table.
func both(t *testing.T, f func(t *testing.T, align int)) {
	for _, align := range []int{0, 4096} {
		t.Run(fmt.Sprintf("align=%d", align), func(t *testing.T) { f(t, align) })
	}
}

func TestRoundTrip(t *testing.T) {
	both(t, func(t *testing.T, align int) {
		b := made(t, align)
		var last, total atomic.Int64
		if err := b.Verify(context.Background(), func(d, n int64) {
			for o := last.Load(); d > o && !last.CompareAndSwap(o, d); o = last.Load() {
			}
			total.Store(n)
		}); err != nil {
			t.Fatal(err)
		}
		if last.Load() != total.Load() || total.Load() == 0 {
			t.Errorf("progress ended at %d of %d", last.Load(), total.Load())
		}
		g := b.Manifest.Rows
		data, err := os.ReadFile(b.Path(MemberRows))
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != g.FileSize() {
			t.Fatalf("rows are %d bytes, want %d", len(data), g.FileSize())
		}
		h, err := DecodeHeader("rows", data)
		if err != nil || h.Geometry != g || !bytes.Equal(h.Encode(), data[:HeaderSize]) {
			t.Fatalf("header page: %v, %+v", err, h)
		}
		for l := range g.Layers {
			var crcs []byte
			for n := range g.Neurons {
				// the address written out, not through RecordOffset
				rec := data[4096+l*int(g.LayerStride)+n*g.Stride:][:g.Stride]
				if !bytes.Equal(rec[:g.RowBytes], rowsOf(g, l, n)) {
					t.Fatalf("layer %d, neuron %d: other rows", l, n)
				}
				if err := CheckRecord(g, l, n, rec); err != nil {
					t.Fatal(err)
				}
				end := g.Stride
				if g.Trailer {
					end -= 4
				}
				crcs = binary.LittleEndian.AppendUint32(crcs, CRC(rec[:end]))
				if tr := rec[g.Stride-16:]; g.Trailer && (binary.LittleEndian.Uint16(tr[4:]) != uint16(l) || binary.LittleEndian.Uint32(tr[8:]) != uint32(n) || string(tr[:4]) != "NREC") {
					t.Fatalf("layer %d, neuron %d: trailer %x", l, n, tr)
				}
			}
			if got := CRC(crcs); got != b.Manifest.LayerCRC[l] {
				t.Errorf("layer %d: checksum %08x, manifest %08x", l, got, b.Manifest.LayerCRC[l])
			}
		}
		// the manifest again gives the same bytes
		enc, err := b.Manifest.Encode()
		if err != nil {
			t.Fatal(err)
		}
		onDisk, _ := os.ReadFile(b.Path(MemberManifest))
		if !bytes.Equal(enc, onDisk) {
			t.Errorf("manifest read and written again differs:\n%s", cmp.Diff(string(onDisk), string(enc)))
		}
	})
}

// damage is a way to hurt a bundle and what must be said of it.
type damage struct {
	name  string
	align int
	do    func(t *testing.T, b *Bundle)
	want  []string // all in the error's text
	open  bool     // found by Open already
}

func flip(member string, off int64) func(t *testing.T, b *Bundle) {
	return func(t *testing.T, b *Bundle) {
		edit(t, b, member, func(d []byte) []byte { d[off] ^= 0x10; return d })
	}
}

// fixHeaderCRC makes a changed header page consistent again, so that the check behind the checksum is reached.
func fixHeaderCRC(d []byte) []byte {
	binary.LittleEndian.PutUint32(d[4092:], CRC(d[:4092]))
	return d
}

func header(f func(d []byte)) func(t *testing.T, b *Bundle) {
	return func(t *testing.T, b *Bundle) {
		edit(t, b, MemberRows, func(d []byte) []byte { f(d); return fixHeaderCRC(d) })
	}
}

func manifest(f func(m map[string]any)) func(t *testing.T, b *Bundle) {
	return func(t *testing.T, b *Bundle) { editManifest(t, b, f) }
}

func TestDamage(t *testing.T) {
	c := config(t)
	g := NewGeometry(c.Hidden, c.Intermediate, c.Layers, 0)
	side := NewGeometry(c.Hidden, c.Intermediate, c.Layers, 4096)
	le := binary.LittleEndian
	cases := []damage{
		// records
		{name: "gate row", do: flip(MemberRows, g.RecordOffset(1, 7)+3), want: []string{"rows.np", "layer 1", "neuron 7", fmt.Sprint("offset ", g.RecordOffset(1, 7)), "checksum"}},
		{name: "last byte of a down column", do: flip(MemberRows, g.RecordOffset(2, 19)+191), want: []string{"layer 2", "neuron 19", "checksum"}},
		{name: "padding of a record", do: flip(MemberRows, g.RecordOffset(0, 0)+300), want: []string{"layer 0", "neuron 0"}},
		{name: "trailer's checksum", do: flip(MemberRows, g.RecordOffset(0, 3)+511), want: []string{"layer 0", "neuron 3", "checksum"}},
		{name: "padding behind a layer", do: flip(MemberRows, g.LayerOffset(1)+g.LayerBytes()+5), want: []string{"layer 1", fmt.Sprint("offset ", g.LayerOffset(1)+g.LayerBytes()+5), "padding"}},
		{name: "two records changed places", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				x, y := d[g.RecordOffset(1, 4):][:g.Stride], d[g.RecordOffset(1, 5):][:g.Stride]
				z := bytes.Clone(x)
				copy(x, y)
				copy(y, z)
				return d
			})
		}, want: []string{"layer 1, neuron 4", "its trailer names layer 1, neuron 5", "1 more damaged"}},
		{name: "two layers changed places", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				x, y := d[g.LayerOffset(0):][:g.LayerStride], d[g.LayerOffset(1):][:g.LayerStride]
				z := bytes.Clone(x)
				copy(x, y)
				copy(y, z)
				return d
			})
		}, want: []string{"layer 0, neuron 0", "its trailer names layer 1, neuron 0"}},
		{name: "a good record of another bundle", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				rec := d[g.RecordOffset(2, 2):][:g.Stride]
				rec[0] ^= 1
				PutRecordTrailer(g, 2, 2, rec)
				return d
			})
		}, want: []string{"layer 2", fmt.Sprint("offset ", g.LayerOffset(2)), "layer checksum"}},
		{name: "padding with a matching checksum", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				rec := d[g.RecordOffset(2, 2):][:g.Stride]
				rec[200] = 1
				le.PutUint32(rec[508:], CRC(rec[:508]))
				return d
			})
		}, want: []string{"layer 2, neuron 2", fmt.Sprint("offset ", g.RecordOffset(2, 2)+200), "not zero"}},
		{name: "reserved bytes of a trailer", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				rec := d[g.RecordOffset(2, 2):][:g.Stride]
				rec[512-16+6] = 1
				le.PutUint32(rec[508:], CRC(rec[:508]))
				return d
			})
		}, want: []string{"layer 2, neuron 2", "reserved"}},
		{name: "trailer's magic", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte {
				rec := d[g.RecordOffset(0, 1):][:g.Stride]
				rec[512-16] = 'M'
				le.PutUint32(rec[508:], CRC(rec[:508]))
				return d
			})
		}, want: []string{"layer 0, neuron 1", "magic"}},
		{name: "a zeroed page", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte { clear(d[8192:12288]); return d })
		}, want: []string{"layer 0, neuron 8", "more damaged"}},
		{name: "side: record", align: 4096, do: flip(MemberRows, side.RecordOffset(1, 7)), want: []string{"layer 1, neuron 7", "rows.crc"}},
		{name: "side: table", align: 4096, do: flip(MemberRowsCRC, 4*(20+3)), want: []string{"layer 1, neuron 3", "rows.crc"}},
		{name: "side: table shorter", align: 4096, do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRowsCRC, func(d []byte) []byte { return d[:len(d)-4] })
		}, want: []string{"rows.crc", "236 bytes", "240"}, open: true},

		// header page: a flip is found by the checksum, a consistent change by its own check
		{name: "header byte", do: flip(MemberRows, 25), want: []string{"rows.np", "header page", "checksum"}, open: true},
		{name: "magic", do: flip(MemberRows, 0), want: []string{"offset 0", "magic"}, open: true},
		{name: "magic after text transfer", do: header(func(d []byte) { d[6] = '\n' }), want: []string{"offset 0", "magic"}, open: true},
		{name: "byte order", do: header(func(d []byte) { d[8], d[9], d[10], d[11] = 1, 2, 3, 4 }), want: []string{"offset 8", "big-endian"}, open: true},
		{name: "byte-order mark", do: header(func(d []byte) { d[9] = 9 }), want: []string{"offset 8", "byte-order"}, open: true},
		{name: "read version", do: header(func(d []byte) { le.PutUint16(d[12:], 999) }), want: []string{"rows.np", "format version 999"}, open: true},
		{name: "read version 0", do: header(func(d []byte) { le.PutUint16(d[12:], 0) }), want: []string{"format version 0"}, open: true},
		{name: "write version below", do: header(func(d []byte) { le.PutUint16(d[14:], 0) }), want: []string{"writer version 0"}, open: true},
		{name: "header length", do: header(func(d []byte) { d[17] = 1 }), want: []string{"offset 16"}, open: true},
		{name: "reserved", do: header(func(d []byte) { d[52] = 1 }), want: []string{"offset 52", "reserved"}, open: true},
		{name: "reserved tail", do: header(func(d []byte) { d[4091] = 1 }), want: []string{"offset 4091", "reserved"}, open: true},
		{name: "unknown flag", do: header(func(d []byte) { d[48] |= 2 }), want: []string{"offset 48", "0x2"}, open: true},
		{name: "dtype", do: header(func(d []byte) { d[20] = 2 }), want: []string{"offset 20", "type 2"}, open: true},
		{name: "layers", do: header(func(d []byte) { d[32] = 4 }), want: []string{"geometry differs"}, open: true},
		{name: "no layers", do: header(func(d []byte) { d[32] = 0 }), want: []string{"0 layers"}, open: true},
		{name: "huge neurons", do: header(func(d []byte) { le.PutUint32(d[28:], 1<<31) }), want: []string{"neurons"}, open: true},
		{name: "stride", do: header(func(d []byte) { le.PutUint32(d[40:], 1<<30) }), want: []string{"stride"}, open: true},
		{name: "layer stride overflow", do: header(func(d []byte) { le.PutUint64(d[64:], 1<<62) }), want: []string{"layer stride"}, open: true},
		{name: "alignment", do: header(func(d []byte) { le.PutUint32(d[44:], 513) }), want: []string{"alignment"}, open: true},

		// files
		{name: "rows shorter", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte { return d[:len(d)-1] })
		}, want: []string{"rows.np", "bytes"}, open: true},
		{name: "rows longer", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func(d []byte) []byte { return append(d, 0) })
		}, want: []string{"rows.np", "bytes"}, open: true},
		{name: "rows empty", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberRows, func([]byte) []byte { return nil })
		}, want: []string{"rows.np", "0 bytes"}, open: true},
		{name: "resident", do: flip(MemberResident, 17), want: []string{"resident.safetensors", "sha256"}},
		{name: "config", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberConfig, func(d []byte) []byte { return bytes.Replace(d, []byte("320"), []byte("321"), 1) })
		}, want: []string{"config.json", "sha256"}},
		{name: "tokenizer no JSON", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberTokenizer, func(d []byte) []byte { d[0] = '['; return d })
		}, want: []string{"tokenizer.json", "JSON"}, open: true},
		{name: "member missing", do: func(t *testing.T, b *Bundle) { os.Remove(b.Path(MemberResident)) }, want: []string{"resident.safetensors", "missing"}, open: true},
		{name: "member is a directory", do: func(t *testing.T, b *Bundle) {
			os.Remove(b.Path(MemberResident))
			os.Mkdir(b.Path(MemberResident), 0o777)
		}, want: []string{"resident.safetensors", "regular"}, open: true},
		{name: "no manifest", do: func(t *testing.T, b *Bundle) { os.Remove(b.Path(MemberManifest)) }, want: []string{"manifest.json", "not a bundle"}, open: true},

		// manifest
		{name: "manifest cut", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberManifest, func(d []byte) []byte { return d[:len(d)/2] })
		}, want: []string{"manifest.json", "JSON"}, open: true},
		{name: "text behind", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberManifest, func(d []byte) []byte { return append(d, '{') })
		}, want: []string{"manifest.json"}, open: true},
		{name: "key twice", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberManifest, func(d []byte) []byte { return append([]byte(`{"tool":"x",`), d[1:]...) })
		}, want: []string{"manifest.json", "tool"}, open: true},
		{name: "key twice in other case", do: func(t *testing.T, b *Bundle) {
			edit(t, b, MemberManifest, func(d []byte) []byte { return append([]byte(`{"FORMAT":{"reader":1,"writer":1},`), d[1:]...) })
		}, want: []string{"manifest.json", "format"}, open: true},
		{name: "newer reader version", do: manifest(func(m map[string]any) { m["format"].(map[string]any)["reader"] = 7; m["rows"] = "another shape" }), want: []string{"manifest.json", "format version 7"}, open: true},
		{name: "required feature", do: manifest(func(m map[string]any) { m["format"].(map[string]any)["required"] = []string{"q4_rows"} }), want: []string{"q4_rows"}, open: true},
		{name: "unknown member", do: manifest(func(m map[string]any) {
			m["members"] = append(m["members"].([]any), map[string]any{"name": "lookahead", "size": 0, "sha256": string(make64('0'))})
		}), want: []string{`"lookahead"`, "not known"}, open: true},
		{name: "member outside", do: manifest(func(m map[string]any) {
			m["members"] = append(m["members"].([]any), map[string]any{"name": "../secret", "size": 0, "sha256": string(make64('0')), "optional": true})
		}), want: []string{"secret", "plain file name"}, open: true},
		{name: "member twice", do: manifest(func(m map[string]any) {
			x := m["members"].([]any)
			m["members"] = append(x, x[0])
		}), want: []string{"twice"}, open: true},
		{name: "required member not listed", do: manifest(func(m map[string]any) {
			var keep []any
			for _, x := range m["members"].([]any) {
				if x.(map[string]any)["name"] != MemberResident {
					keep = append(keep, x)
				}
			}
			m["members"] = keep
		}), want: []string{"resident.safetensors", "missing"}, open: true},
		{name: "layer checksums short", do: manifest(func(m map[string]any) { m["layer_crc32c"] = []any{1} }), want: []string{"layer_crc32c"}, open: true},
		{name: "layer checksum", do: manifest(func(m map[string]any) { m["layer_crc32c"].([]any)[2] = 5 }), want: []string{"layer 2", "layer checksum"}},
		{name: "negative size", do: manifest(func(m map[string]any) { m["members"].([]any)[0].(map[string]any)["size"] = -1 }), want: []string{"size -1"}, open: true},
		{name: "geometry against the model", do: manifest(func(m map[string]any) { m["rows"].(map[string]any)["neurons"] = 19 }), want: []string{"manifest.json", "neurons"}, open: true},
		{name: "trailer against rows.crc", align: 4096, do: manifest(func(m map[string]any) {
			var keep []any
			for _, x := range m["members"].([]any) {
				if x.(map[string]any)["name"] != MemberRowsCRC {
					keep = append(keep, x)
				}
			}
			m["members"] = keep
		}), want: []string{"rows.crc"}, open: true},
		{name: "K_max", do: manifest(func(m map[string]any) {
			m["sparse"] = map[string]any{"k_max": 21, "default_dense": 1}
		}), want: []string{"k_max 21"}, open: true},
		{name: "selector without its member", do: manifest(func(m map[string]any) {
			m["sparse"] = map[string]any{"k_max": 10, "default_dense": 1, "selectors": []string{"static"}}
		}), want: []string{"static", "centroids"}, open: true},
		{name: "wrong type", do: manifest(func(m map[string]any) { m["tool"] = 5 }), want: []string{"manifest.json", "tool"}, open: true},
	}
	for _, d := range cases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			b := made(t, d.align)
			d.do(t, b)
			b2, err := Open(b.Dir)
			if (err != nil) != d.open {
				t.Fatalf("Open gave %v, wanted an error: %v", err, d.open)
			}
			if err == nil {
				err = b2.Verify(context.Background(), nil)
			}
			if err == nil {
				t.Fatal("not found")
			}
			if !errors.Is(err, format.ErrInput) {
				t.Errorf("kind of %v", err)
			}
			for _, w := range d.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

// What an old reader may ignore, it ignores.
func TestTolerated(t *testing.T) {
	b := made(t, 0)
	if err := os.WriteFile(b.Path("notes"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	editManifest(t, b, func(m map[string]any) {
		m["future"] = map[string]any{"a": 1}
		m["format"].(map[string]any)["writer"] = 9
		m["members"] = append(m["members"].([]any), map[string]any{"name": "notes", "size": 1, "optional": true,
			"sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"})
	})
	edit(t, b, MemberRows, func(d []byte) []byte { d[14] = 9; return fixHeaderCRC(d) })
	b2, err := Open(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b2.Verify(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "rows.np: member is damaged") {
		t.Errorf("a header page changed behind the manifest's back: %v", err)
	}
}

// Any byte of rows.np counts.
func TestEveryByteIsChecked(t *testing.T) {
	both(t, func(t *testing.T, align int) {
		b := made(t, align)
		f, err := os.OpenFile(b.Path(MemberRows), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		step := int64(307)
		if align != 0 {
			step = 4093
		}
		var one [1]byte
		for off := int64(0); off < b.Manifest.Rows.FileSize(); off += step {
			f.ReadAt(one[:], off)
			one[0] ^= 0x80
			f.WriteAt(one[:], off)
			if err := b.Verify(context.Background(), nil); err == nil {
				t.Errorf("byte %d flipped and not found", off)
			}
			one[0] ^= 0x80
			f.WriteAt(one[:], off)
		}
		if err := b.Verify(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	})
}

func TestVerifyStops(t *testing.T) {
	b := made(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Verify(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOpenWhatIsNoBundle(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, format.ErrInput) || format.HintOf(err) == "" {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := Open(dir + "/none"); !errors.Is(err, format.ErrInput) {
		t.Errorf("nothing: %v", err)
	}
	os.WriteFile(dir+"/f", nil, 0o666)
	if _, err := Open(dir + "/f"); !errors.Is(err, format.ErrInput) {
		t.Errorf("file: %v", err)
	}
}
