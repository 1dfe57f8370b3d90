package tensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"neuroprefetcher/format"
)

// st is a safetensors file with exactly this header and payload.
func st(header string, payload []byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), payload...)
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

const pair = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`

// one is a header with tensor "t".
func one(dtype, shape, offsets string) string {
	return `{"t":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

var pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 4949453792\n"

func TestRefusals(t *testing.T) {
	zeros := func(n int) []byte { return make([]byte, n) }
	short := func(length string) []byte { return append([]byte(length), zeros(1016)...) }
	deep := strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100)
	for _, c := range []struct {
		name string
		data []byte
		want []string // parts of the message
	}{
		{"empty file", nil, []string{"0 bytes are too few"}},
		{"seven bytes", zeros(7), []string{"7 bytes are too few"}},
		{"lfs pointer", []byte(pointer), []string{"git-lfs pointer", "not downloaded", `"size 4949453792"`}},
		{"huge length", short("\xff\xff\xff\xff\xff\xff\xff\x7f"), []string{"header length 9223372036854775807", "100000000"}},
		{"largest length", short("\xff\xff\xff\xff\xff\xff\xff\xff"), []string{"header length 18446744073709551615"}},
		{"one above the cap", short("\x01\xe1\xf5\x05\x00\x00\x00\x00"), []string{"header length 100000001", "100000000 bytes allowed"}},
		{"at the cap, past the file", short("\x00\xe1\xf5\x05\x00\x00\x00\x00"), []string{"header length 100000000", "the 1016 bytes that follow"}},
		{"zero length", zeros(8), []string{"empty header"}},
		{"shape against range", st(one("F32", "[1000,1000]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "4000000 bytes", "hold 4"}},
		{"shape overflows", st(one("F32", "[4294967296,4294967296]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "overflows"}},
		{"shape overflows to zero", st(one("F32", "[4294967296,4294967296]", "[0,0]"), nil), []string{`tensor "t"`, "overflows"}},
		{"dimension above int64", st(one("U8", "[18446744073709551615]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "overflows"}},
		{"dimension above uint64", st(one("U8", "[18446744073709551616]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "shape"}},
		{"negative dimension", st(one("F32", "[-1]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "shape"}},
		{"broken dimension", st(one("F32", "[1.0]", "[0,4]"), zeros(4)), []string{`tensor "t"`, "shape"}},
		{"too many dimensions", st(one("U8", "["+strings.Repeat("1,", 16)+"1]", "[0,1]"), zeros(1)), []string{`tensor "t"`, "17 dimensions"}},
		{"offsets backwards", st(one("F32", "[1]", "[100,9]"), zeros(4)), []string{`tensor "t"`, "[100,9]"}},
		{"three offsets", st(one("F32", "[1]", "[0,4,8]"), zeros(4)), []string{`tensor "t"`, "data_offsets"}},
		{"offsets at the end of uint64", st(one("F32", "[1]", "[18446744073709551608,18446744073709551612]"), zeros(4)), []string{`tensor "t"`, "past the end"}},
		{"one byte more", append(st(pair, zeros(12)), 0), []string{"1 bytes of the payload", `tensor "b"`}},
		{"one byte less", st(pair, zeros(11)), []string{`tensor "b"`, "cut short"}},
		{"payload without tensors", st(`{}`, zeros(3)), []string{"3 bytes of the payload"}},
		{"overlap", st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, zeros(12)),
			[]string{`tensor "b"`, "overlap", `tensor "a"`}},
		{"same range twice", st(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, zeros(4)),
			[]string{`tensor "b"`, "overlap", `tensor "a"`}},
		{"gap", st(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, zeros(12)),
			[]string{`tensor "b"`, "gap of 4 bytes"}},
		{"gap at the beginning", st(one("F32", "[1]", "[4,8]"), zeros(8)), []string{`tensor "t"`, "gap of 4 bytes"}},
		{"name twice", st(`{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, zeros(8)),
			[]string{`duplicate key "t"`}},
		{"name twice, once escaped", st(`{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0074":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, zeros(8)),
			[]string{`duplicate key "t"`}},
		{"key twice inside", st(`{"t":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}`, zeros(4)), []string{`duplicate key "dtype" in "t"`}},
		{"metadata twice", st(`{"__metadata__":{"a":"b"},"__metadata__":{}}`, nil), []string{`duplicate key "__metadata__"`}},
		{"old writer's header", st(`{},"__metadata__":{"format":"pt"}}`, nil), []string{"data after the end of the JSON value"}},
		{"space before the header", st(` {}`, nil), []string{"does not begin with '{'"}},
		{"null header", st(`null`, nil), []string{"does not begin with '{'"}},
		{"cut JSON", st(`{"t":{"dtype":`, zeros(4)), []string{"JSON"}},
		{"bad UTF-8", st("{\"\xff\":{}}", nil), []string{"not UTF-8"}},
		{"deep JSON", st(`{"t":`+deep+`}`, nil), []string{"deeper than 64"}},
		{"tensor is null", st(`{"t":null}`, nil), []string{`tensor "t"`}},
		{"tensor is a list", st(`{"t":[]}`, nil), []string{"header"}},
		{"a key too many", st(`{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}}`, nil), []string{`tensor "t"`, "3 keys"}},
		{"dtype F8_E4M3", st(one("F8_E4M3", "[4]", "[0,4]"), zeros(4)), []string{`tensor "t"`, `dtype "F8_E4M3"`, "not supported"}},
		{"dtype F9", st(one("F9", "[4]", "[0,4]"), zeros(4)), []string{`tensor "t"`, `dtype "F9"`, "not supported"}},
		{"dtype in small letters", st(one("f32", "[1]", "[0,4]"), zeros(4)), []string{`tensor "t"`, `dtype "f32"`}},
		{"dtype is a number", st(`{"t":{"dtype":1,"shape":[1],"data_offsets":[0,4]}}`, zeros(4)), []string{`tensor "t"`, "dtype"}},
		{"metadata is no string", st(`{"__metadata__":{"a":1}}`, nil), []string{"__metadata__"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.data)
			f, err := Open(path)
			if err == nil {
				f.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, format.ErrInput) {
				t.Errorf("not ErrInput: %v", err)
			}
			msg := err.Error()
			if strings.Contains(msg, "\n") {
				t.Errorf("more than one line: %q", msg)
			}
			for _, w := range append(c.want, path) {
				if !strings.Contains(msg, w) {
					t.Errorf("%q lacks %q", msg, w)
				}
			}
		})
	}
}

func TestOddPlaces(t *testing.T) {
	for name, path := range map[string]string{"absent": filepath.Join(t.TempDir(), "none"), "directory": t.TempDir()} {
		if _, err := Open(path); !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLegalFiles(t *testing.T) {
	le := func(v ...uint32) (out []byte) {
		for _, x := range v {
			out = binary.LittleEndian.AppendUint32(out, x)
		}
		return out
	}
	for _, c := range []struct {
		name, header string
		payload      []byte
	}{
		{"no tensors", `{}`, nil},
		{"even header", one("I32", "[2]", "[0,8]") + "   ", le(7, 9)},
		{"odd header, unaligned payload", one("I32", "[2]", "[0,8]") + strings.Repeat(" ", 7-len(one("I32", "[2]", "[0,8]"))%2), le(7, 9)},
		{"odd header", one("I32", "[2]", "[0,8]") + strings.Repeat(" ", 1+len(one("I32", "[2]", "[0,8]"))%2), le(7, 9)},
		{"spaces after the header", one("I32", "[2]", "[0,8]") + strings.Repeat(" ", 100), le(7, 9)},
		{"empty tensors", `{"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},"t":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"z":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}`, le(7, 9)},
		{"scalar", `{"s":{"dtype":"I32","shape":[],"data_offsets":[8,12]},"t":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}`, le(7, 9, 11)},
		{"every dtype", `{"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},"t":{"dtype":"I32","shape":[2],"data_offsets":[9,17]}}`,
			append(make([]byte, 9), le(7, 9)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(write(t, st(c.header, c.payload)))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, ok := f.Info("t"); !ok {
				if len(f.Names()) != 0 {
					t.Errorf("names %q", f.Names())
				}
				return
			}
			got, err := f.I32("t")
			if err != nil || len(got) != 2 || got[0] != 7 || got[1] != 9 {
				t.Errorf("%v, %v", got, err)
			}
			f.Release("t")
			if again, err := f.Bytes("t"); err != nil || !bytes.Equal(again, le(7, 9)) {
				t.Errorf("after Release: %v, %v", again, err)
			}
			if s, ok := f.Info("s"); ok {
				if v, err := f.I32("s"); len(s.Shape) != 0 || err != nil || len(v) != 1 || v[0] != 11 {
					t.Errorf("scalar %v %v %v", s, v, err)
				}
			}
		})
	}
	// The header of odd length must really have put the payload at an odd offset.
	f, err := Open(write(t, st(one("I32", "[2]", "[0,8]")+" "+strings.Repeat(" ", len(one("I32", "[2]", "[0,8]"))%2), le(7, 9))))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if i, _ := f.Info("t"); i.Begin%2 != 1 || i.End != i.Begin+8 {
		t.Errorf("payload at %d to %d, want an odd beginning", i.Begin, i.End)
	}
}

func TestTypedReads(t *testing.T) {
	f, err := Open(write(t, st(pair, make([]byte, 12))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.U64("a"); err == nil || !strings.Contains(err.Error(), `tensor "a" is F32, not U64`) {
		t.Errorf("wrong dtype: %v", err)
	}
	if _, err := f.F32("c"); err == nil || !strings.Contains(err.Error(), `no tensor "c"`) {
		t.Errorf("absent tensor: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Bytes("a"); err == nil {
		t.Error("read after Close")
	}
	f.Release("a")
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestLargeFile reads past 4 GiB in a file with a hole.
func TestLargeFile(t *testing.T) {
	const big = 5 << 30
	h := fmt.Sprintf(`{"a":{"dtype":"F16","shape":[%d],"data_offsets":[0,%d]},"t":{"dtype":"I32","shape":[1],"data_offsets":[%d,%d]}}`, big/2, big, big, big+4)
	path := write(t, st(h, nil))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{42, 0, 0, 0}, 8+int64(len(h))+big); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if v, err := r.I32("t"); err != nil || len(v) != 1 || v[0] != 42 {
		t.Errorf("%v, %v", v, err)
	}
	a, err := r.Bytes("a")
	if err != nil || len(a) != big || a[big-1] != 0 {
		t.Errorf("%d bytes, %v", len(a), err)
	}
	r.Release("a")
}

// FuzzHeader holds our header parser against the laws of the format, and what it accepts against the library's reader.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{pair, `{}`, one("F32", "[1000,1000]", "[0,4]"), one("BF16", "[4294967296,4294967296]", "[0,4]"), one("F9", "[]", "[0,1]"),
		`{"t":null}`, `{},"__metadata__"`, `{"__metadata__":{"a":"b"}}`, `{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}  `} {
		f.Add([]byte(s), uint16(12))
	}
	f.Fuzz(func(t *testing.T, h []byte, payload uint16) {
		got, err := parseHeader("f", h, int64(payload))
		if err != nil {
			if !errors.Is(err, format.ErrInput) {
				t.Fatalf("not ErrInput: %v", err)
			}
			return
		}
		var bytes int64
		for _, name := range got.names {
			i := got.infos[name]
			if i.Begin < 8+int64(len(h)) || i.End > 8+int64(len(h))+int64(payload) || i.End < i.Begin {
				t.Fatalf("%q: range %d to %d", name, i.Begin, i.End)
			}
			bytes += i.End - i.Begin
		}
		if bytes != int64(payload) {
			t.Fatalf("%d of %d bytes belong to tensors", bytes, payload)
		}
		if _, err := safetensors.Deserialize(st(string(h), make([]byte, payload))); err != nil {
			t.Fatalf("accepted here, refused by the library: %v", err)
		}
	})
}
