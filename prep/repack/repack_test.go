package repack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/x448/float16"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	ct "neuroprefetcher/format/checkpoint/checkpointtest"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/stage"
)

// repackTo runs the stage on a checkpoint directory and gives its folder.
func repackTo(t *testing.T, dir, work string, align, threads int) (string, stage.Report, error) {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pool := kernels.NewPool(threads)
	defer pool.Close()
	r, err := Run(context.Background(), &stage.Env{Work: work, Pool: pool}, Options{Checkpoint: c, RecordAlign: align})
	return filepath.Join(work, Name), r, err
}

// files reads the outputs.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range []string{bundle.MemberRows, bundle.MemberResident, LayersFile} {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		out[n] = string(b)
	}
	return out
}

// half is the reference conversion.
func half(f float32) uint16 { return float16.Fromfloat32(f).Bits() }

// checkRows compares every record with the tensors it was made of, and gives the count of values that float16
// holds less exactly.
func checkRows(t *testing.T, dir string, ts []ct.Tensor, h, m, layers int) (underflow int64) {
	t.Helper()
	rows, err := os.ReadFile(filepath.Join(dir, bundle.MemberRows))
	if err != nil {
		t.Fatal(err)
	}
	hd, err := bundle.DecodeHeader("rows.np", rows)
	if err != nil {
		t.Fatal(err)
	}
	g := hd.Geometry
	lay, err := ReadLayers(dir)
	if err != nil || lay.Rows != g {
		t.Fatalf("layers.json: %v", err)
	}
	for l := range layers {
		var crcs []byte
		gate := ct.Find(ts, fmt.Sprintf("model.layers.%d.mlp.gate_proj.weight", l))
		up := ct.Find(ts, fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", l))
		down := ct.Find(ts, fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", l))
		for n := range m {
			rec := rows[g.RecordOffset(l, n):][:g.Stride]
			if err := bundle.CheckRecord(g, l, n, rec); err != nil {
				t.Fatal(err)
			}
			for i := range h {
				for j, v := range []float32{gate.At(n*h + i), up.At(n*h + i), down.At(i*m + n)} {
					want := half(v)
					if got := binary.LittleEndian.Uint16(rec[2*(j*h+i):]); got != want {
						t.Fatalf("layer %d, neuron %d, row %d, element %d: %04x, want %04x of %g", l, n, j, i, got, want, v)
					}
					if x := float16.Frombits(want).Float32(); x != v && v > -0x1p-14 && v < 0x1p-14 {
						underflow++
					}
				}
			}
			end := g.Stride
			if g.Trailer {
				end -= 4
			}
			crcs = binary.LittleEndian.AppendUint32(crcs, bundle.CRC(rec[:end]))
		}
		if bundle.CRC(crcs) != lay.CRC[l] {
			t.Errorf("layer %d: checksum in layers.json is %08x, want %08x", l, lay.CRC[l], bundle.CRC(crcs))
		}
	}
	return underflow
}

func TestRecordsEqualTheirTensors(t *testing.T) {
	for _, c := range []struct {
		name   string
		align  int
		strip  int // bytes
		change func(m *ct.Model)
	}{
		{"BF16", 0, 32 << 20, func(*ct.Model) {}},
		{"F32", 0, 32 << 20, func(m *ct.Model) { m.DType, m.NormDType = "F32", "F32" }},
		{"F16", 0, 32 << 20, func(m *ct.Model) { m.DType = "F16" }},
		{"pages", 4096, 32 << 20, func(*ct.Model) {}},
		{"one record at a time", 0, 1, func(*ct.Model) {}},
		{"strips that do not divide", 0, 7 * 512, func(*ct.Model) {}},
		{"odd sizes", 0, 5 * 1024, func(m *ct.Model) {
			m.Hidden, m.Heads, m.KVHeads, m.HeadDim, m.Intermediate = 70, 5, 1, 14, 37
		}},
		{"shards", 0, 32 << 20, func(m *ct.Model) { m.Shards = 2 }},
		{"qwen2", 0, 32 << 20, func(m *ct.Model) {
			m.QKVBias = true
			m.Config["model_type"], m.Config["architectures"] = "qwen2", []string{"Qwen2ForCausalLM"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func(n int) { stripBytes = n }(stripBytes)
			stripBytes = c.strip
			m := ct.Tiny()
			c.change(m)
			dir := filepath.Join(t.TempDir(), "c")
			if err := m.Write(dir); err != nil {
				t.Fatal(err)
			}
			out, r, err := repackTo(t, dir, t.TempDir(), c.align, 2)
			if err != nil {
				t.Fatal(err)
			}
			ts := m.Weights()
			want := checkRows(t, out, ts, m.Hidden, m.Intermediate, m.Layers)
			want += checkResident(t, out, ts)
			if r.Values["underflow"] != want {
				t.Errorf("underflow reported %v, counted %d", r.Values["underflow"], want)
			}
		})
	}
}

// checkResident compares resident.safetensors with every tensor outside the MLPs.
func checkResident(t *testing.T, dir string, ts []ct.Tensor) (underflow int64) {
	t.Helper()
	f, err := tensors.Open(filepath.Join(dir, bundle.MemberResident))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for i := range ts {
		x := &ts[i]
		if strings.Contains(x.Name, ".mlp.") {
			continue
		}
		n++
		if len(x.Shape) == 1 {
			got, err := f.F32(x.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range x.Values() {
				if got[i] != v {
					t.Fatalf("%s: element %d is %g, want %g", x.Name, i, got[i], v)
				}
			}
			continue
		}
		got, err := f.F16(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range x.Values() {
			if got[i] != half(v) {
				t.Fatalf("%s: element %d is %04x, want %04x", x.Name, i, got[i], half(v))
			}
			if y := float16.Frombits(got[i]).Float32(); y != v && v > -0x1p-14 && v < 0x1p-14 {
				underflow++
			}
		}
	}
	if len(f.Names()) != n {
		t.Errorf("%d tensors, want %d: %v", len(f.Names()), n, f.Names())
	}
	return underflow
}

// Values at the edges of float16, in each of the places a weight can be.
func TestEdgesOfFloat16(t *testing.T) {
	names := []string{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight"}
	base, _, err := repackTo(t, ct.Dir(t), t.TempDir(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	baseUnder := checkRows(t, base, ct.Tiny().Weights(), 64, 96, 3) + checkResident(t, base, ct.Tiny().Weights())
	for _, name := range names {
		for _, c := range []struct {
			bits   uint16 // BF16
			refuse string
			under  int64
		}{
			{0x4780, "65504", 0}, // 65,536
			{0xc780, "65504", 0},
			{0x477f, "", 0}, // 65,280
			{0x3300, "", 1}, // 2^-25, a tie: becomes 0
			{0x3301, "", 1}, // just above: becomes 2^-24
			{0x3380, "", 0}, // 2^-24, exact
			{0x7fc0, "NaN", 0},
			{0x7f80, "infinite", 0},
			{0x0000, "", 0},
			{0x8000, "", 0},
		} {
			edit := func(ts []ct.Tensor) []ct.Tensor {
				ct.Find(ts, name).SetBits(77, c.bits)
				return ts
			}
			old := ct.Find(ct.Tiny().Weights(), name).At(77)
			before := int64(0)
			if x := float16.Fromfloat32(old).Float32(); x != old && old > -0x1p-14 && old < 0x1p-14 {
				before = 1
			}
			work := t.TempDir()
			out, r, err := repackTo(t, ct.Dir(t, func(m *ct.Model) { m.Edit = edit }), work, 0, 2)
			if c.refuse != "" {
				if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), c.refuse) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "element 77 ") {
					t.Errorf("%s = %04x: %v", name, c.bits, err)
				}
				if _, err := os.Stat(filepath.Join(out, bundle.MemberRows)); err == nil {
					t.Errorf("%s = %04x: refused but rows.np is there", name, c.bits)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s = %04x: %v", name, c.bits, err)
				continue
			}
			ts := edit(ct.Tiny().Weights())
			checkRows(t, out, ts, 64, 96, 3)
			checkResident(t, out, ts)
			if got := r.Values["underflow"].(int64); got != baseUnder-before+c.under {
				t.Errorf("%s = %04x: underflow %d, want %d", name, c.bits, got, baseUnder-before+c.under)
			}
		}
	}
	// a norm is float32: what float16 cannot hold is no matter there, NaN is
	_, _, err = repackTo(t, ct.Dir(t, func(m *ct.Model) {
		m.Edit = func(ts []ct.Tensor) []ct.Tensor { ct.Find(ts, "model.norm.weight").SetBits(3, 0x4780); return ts }
	}), t.TempDir(), 0, 1)
	if err != nil {
		t.Errorf("large norm: %v", err)
	}
	_, _, err = repackTo(t, ct.Dir(t, func(m *ct.Model) {
		m.Edit = func(ts []ct.Tensor) []ct.Tensor { ct.Find(ts, "model.norm.weight").SetBits(3, 0x7fc0); return ts }
	}), t.TempDir(), 0, 1)
	if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "model.norm.weight") {
		t.Errorf("NaN norm: %v", err)
	}
}

// Norms in float32 beside matrices in bfloat16 give the same bytes as all bfloat16.
func TestMixedDTypesGiveTheSameBytes(t *testing.T) {
	a, _, err := repackTo(t, ct.Dir(t), t.TempDir(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := repackTo(t, ct.Dir(t, func(m *ct.Model) { m.NormDType = "F32"; m.Config["torch_dtype"] = ct.Absent }), t.TempDir(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	x, y := files(t, a), files(t, b)
	for n := range x {
		if x[n] != y[n] {
			t.Errorf("%s differs", n)
		}
	}
}

func TestBytesDoNotDependOnThreadsOrStrips(t *testing.T) {
	dir := ct.Dir(t)
	first, _, err := repackTo(t, dir, t.TempDir(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := files(t, first)
	defer func(n int) { stripBytes = n }(stripBytes)
	for _, threads := range []int{1, 2, 3, 7} {
		stripBytes = threads * 1500
		out, _, err := repackTo(t, dir, t.TempDir(), 0, threads)
		if err != nil {
			t.Fatal(err)
		}
		for n, s := range files(t, out) {
			if s != want[n] {
				t.Errorf("%d threads: %s differs", threads, n)
			}
		}
	}
}

// The head of a tied model is stored once.
func TestTiedHeadIsStoredOnce(t *testing.T) {
	size := func(tied bool) int64 {
		out, _, err := repackTo(t, ct.Dir(t, func(m *ct.Model) { m.Tied = tied; m.Config["tie_word_embeddings"] = tied }), t.TempDir(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		f, err := tensors.Open(filepath.Join(out, bundle.MemberResident))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var n int64
		for _, name := range f.Names() {
			i, _ := f.Info(name)
			n += i.End - i.Begin
		}
		return n
	}
	if d := size(false) - size(true); d != int64(ct.TokenizerSize)*64*2 {
		t.Errorf("tied saves %d bytes, want %d", d, ct.TokenizerSize*64*2)
	}
}

// A run that was told to stop goes on from the layers it had finished, if they are still what they were.
func TestInterruptedRunGoesOn(t *testing.T) {
	dir := ct.Dir(t, func(m *ct.Model) { m.Layers = 6 })
	for _, align := range []int{0, 4096} {
		whole, _, err := repackTo(t, dir, t.TempDir(), align, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := files(t, whole)
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		work := t.TempDir()
		out := filepath.Join(work, Name)
		// stop after two layers: their notes are what the next run goes on from
		ctx := &stopAfter{Context: context.Background(), when: func() bool {
			_, err := os.Stat(filepath.Join(out, layerUnit(1)))
			return err == nil
		}}
		_, err = Run(ctx, &stage.Env{Work: work}, Options{Checkpoint: c, RecordAlign: align})
		c.Close()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted: %v", err)
		}
		if _, err := os.Stat(filepath.Join(out, bundle.MemberRows)); err == nil {
			t.Error("rows.np is there before it is whole")
		}
		// one of the two is hurt on the drive meanwhile
		f, err := os.OpenFile(filepath.Join(out, partialFile), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte{1, 2, 3}, 4096+5*512)
		f.Close()
		_, r, err := repackTo(t, dir, work, align, 2)
		if err != nil {
			t.Fatal(err)
		}
		if r.Values["resumed_layers"] != 1 {
			t.Errorf("align %d: resumed %v layers, want 1", align, r.Values["resumed_layers"])
		}
		for n, s := range files(t, out) {
			if s != want[n] {
				t.Errorf("align %d: %s differs", align, n)
			}
		}
	}
}

// stopAfter is a context that ends when a condition holds.
type stopAfter struct {
	context.Context
	when func() bool
}

func (s *stopAfter) Err() error {
	if s.when() {
		return context.Canceled
	}
	return nil
}

func TestMemoryLimitIsHeldAgainstALayer(t *testing.T) {
	c, err := checkpoint.Open(ct.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = Run(context.Background(), &stage.Env{Work: t.TempDir(), Memory: 1 << 20}, Options{Checkpoint: c})
	if !errors.Is(err, format.ErrFit) || !strings.Contains(err.Error(), "1.0 MiB") {
		t.Errorf("%v", err)
	}
}

// The side table holds the checksums of the records.
func TestSideTable(t *testing.T) {
	out, _, err := repackTo(t, ct.Dir(t), t.TempDir(), 4096, 2)
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.ReadFile(filepath.Join(out, bundle.MemberRowsCRC))
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := os.ReadFile(filepath.Join(out, bundle.MemberRows))
	g := bundle.NewGeometry(64, 96, 3, 4096)
	var want []byte
	for l := range 3 {
		for n := range 96 {
			want = binary.LittleEndian.AppendUint32(want, bundle.CRC(rows[g.RecordOffset(l, n):][:g.Stride]))
		}
	}
	if !bytes.Equal(side, want) {
		t.Error("rows.crc differs")
	}
}

// Converting a tensor leaves nothing behind: what is kept does not grow with the number of tensors.
func TestResidentKeepsNoScratch(t *testing.T) {
	c, err := checkpoint.Open(ct.Dir(t, func(m *ct.Model) { m.Layers, m.Hidden, m.HeadDim, m.Heads, m.KVHeads = 6, 512, 64, 8, 8 }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := &repacker{ctx: context.Background(), c: c}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var n int64
	var entries []tensors.Entry
	for _, name := range residentNames(c.Config) {
		e, err := r.entry(name, &n)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Write(io.Discard); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("%d bytes are kept for %d tensors", after-before, len(entries))
	}
	runtime.KeepAlive(entries)
}
