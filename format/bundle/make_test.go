package bundle

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"neuroprefetcher/format/checkpoint"
)

// testConfig is a model of 3 layers of 20 neurons of width 32.
const testConfig = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":32,"intermediate_size":20,"num_hidden_layers":3,
"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":320,"max_position_embeddings":256,"rms_norm_eps":1e-5,"rope_theta":10000.0,
"hidden_act":"silu","tie_word_embeddings":false,"bos_token_id":1,"eos_token_id":2}`

func config(t testing.TB) checkpoint.Config {
	t.Helper()
	c, err := checkpoint.ParseConfig("config.json", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// rowsOf gives the three rows of a record: a fixed function of layer and neuron.
func rowsOf(g Geometry, layer, neuron int) []byte {
	r := rand.New(rand.NewPCG(uint64(layer), uint64(neuron)))
	b := make([]byte, g.RowBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// writeLayer writes a layer in pieces of per records.
func writeLayer(t testing.TB, w *RowsWriter, g Geometry, layer, per int) uint32 {
	t.Helper()
	if err := w.BeginLayer(layer); err != nil {
		t.Fatal(err)
	}
	for lo := 0; lo < g.Neurons; lo += per {
		n := min(per, g.Neurons-lo)
		recs := make([]byte, n*g.Stride)
		for i := range recs {
			recs[i] = 0xee // what is not filled in must be cleared
		}
		for i := range n {
			copy(recs[i*g.Stride:], rowsOf(g, layer, lo+i))
		}
		if err := w.PutRecords(recs); err != nil {
			t.Fatal(err)
		}
	}
	crc, err := w.EndLayer()
	if err != nil {
		t.Fatal(err)
	}
	return crc
}

// work makes rows.np and the small members in a folder.
func work(t testing.TB, align int) (dir string, m *Manifest) {
	t.Helper()
	dir = t.TempDir()
	c := config(t)
	g := NewGeometry(c.Hidden, c.Intermediate, c.Layers, align)
	w, err := OpenRows(filepath.Join(dir, "partial"), g)
	if err != nil {
		t.Fatal(err)
	}
	for l := range g.Layers {
		writeLayer(t, w, g, l, 7)
	}
	crcs, err := w.Finish(filepath.Join(dir, MemberRowsCRC))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "partial"), filepath.Join(dir, MemberRows)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, MemberResident), rowsOf(g, 99, 99), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir, &Manifest{Format: Format{ReaderVersion, WriterVersion, nil}, Tool: "test 1", Model: c, Rows: g, LayerCRC: crcs,
		Sources: []Source{{"model.safetensors", 1, string(make64('a'))}}, Params: map[string]string{"dense": "true"}}
}

func make64(c byte) []byte {
	b := make([]byte, 64)
	for i := range b {
		b[i] = c
	}
	return b
}

// publish puts a bundle at out.
func publish(t testing.TB, dir string, m *Manifest, out string) error {
	t.Helper()
	w, err := NewWriter(out)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := context.Background()
	names := []string{MemberRows, MemberResident}
	if !m.Rows.Trailer {
		names = append(names, MemberRowsCRC)
	}
	var paths []string
	for _, n := range names {
		paths = append(paths, filepath.Join(dir, n))
	}
	if err := w.Room(1<<16, paths...); err != nil {
		return err
	}
	for i, n := range names {
		if err := w.Link(ctx, n, paths[i], "", nil); err != nil {
			return err
		}
	}
	if err := w.Put(MemberConfig, []byte(testConfig)); err != nil {
		return err
	}
	if err := w.Put(MemberTokenizer, []byte(`{"model":{}}`)); err != nil {
		return err
	}
	return w.Publish(ctx, m)
}

// made is a published bundle that a test may damage: a copy of one made once.
func made(t testing.TB, align int) *Bundle {
	t.Helper()
	madeMu.Lock()
	defer madeMu.Unlock()
	if madeFiles[align] == nil {
		dir, m := work(t, align)
		first := filepath.Join(t.TempDir(), "b.np")
		if err := publish(t, dir, m, first); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		ents, err := os.ReadDir(first)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range ents {
			if files[e.Name()], err = os.ReadFile(filepath.Join(first, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		madeFiles[align] = files
	}
	out := t.TempDir()
	for name, data := range madeFiles[align] {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	madeMu    sync.Mutex
	madeFiles = map[int]map[string][]byte{}
)

// edit changes a member's bytes in place.
func edit(t testing.TB, b *Bundle, member string, f func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(b.Path(member))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.Path(member), f(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// editManifest changes the manifest as JSON.
func editManifest(t testing.TB, b *Bundle, f func(m map[string]any)) {
	t.Helper()
	edit(t, b, MemberManifest, func(data []byte) []byte {
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
}
