package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// TestRopeReachesLogits writes one checkpoint's weights under several spellings of the rotary parameters and holds the
// logits of every position to the 200th against the float64 reference with frequencies from the published formulas: the
// spellings of one thing give the same bits, other things give the same logits at position 0 and others later.
func TestRopeReachesLogits(t *testing.T) {
	src := filepath.Join("testdata", "arch", "llama2")
	raw, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	plain := func(theta float64) func(i float64) float64 {
		return func(i float64) float64 { return math.Pow(theta, -i/16) }
	}
	linear := func(i float64) float64 { return plain(10000)(i) / 4 }
	llama3 := func(i float64) float64 { // wavelengths above 64 positions are stretched by 8, below 16 left, between blended
		inv := plain(10000)(i)
		wave := 2 * math.Pi / inv
		smooth := min(1, max(0, (64/wave-1)/(4-1)))
		return (1-smooth)*inv/8 + smooth*inv
	}
	const scaled = `"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64`
	same := map[string][]float32{} // the logits of the first spelling of each thing
	order := []string{"theta 10000", "theta 500000", "linear", "llama3"}
	for _, c := range []struct {
		what, spelling string
		inv            func(i float64) float64
	}{
		{"theta 10000", `{}`, plain(10000)},
		{"theta 10000", `{"rope_scaling":null,"rope_parameters":{"rope_type":"default"}}`, plain(10000)},
		{"theta 500000", `{"rope_theta":500000}`, plain(500000)},
		{"theta 500000", `{"rope_parameters":{"rope_type":"default","rope_theta":500000}}`, plain(500000)},
		{"linear", `{"rope_scaling":{"type":"linear","factor":4.0}}`, linear},
		{"linear", `{"rope_scaling":{"rope_type":"linear","factor":4.0}}`, linear},
		{"llama3", `{"rope_scaling":{"rope_type":"llama3",` + scaled + `}}`, llama3},
		{"llama3", `{"rope_parameters":{"rope_type":"llama3","rope_theta":10000,` + scaled + `}}`, llama3},
	} {
		var config, over map[string]any
		if err := json.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.spelling), &over); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"rope_theta", "rope_scaling", "rope_parameters"} {
			delete(config, k)
		}
		for k, v := range over {
			config[k] = v
		}
		dir := t.TempDir()
		b, err := json.Marshal(config)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666)
		}
		for _, name := range []string{"tokenizer.json", "model.safetensors"} {
			if err == nil {
				var abs string
				if abs, err = filepath.Abs(filepath.Join(src, name)); err == nil {
					err = os.Symlink(abs, filepath.Join(dir, name))
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		cp, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		pool := kernels.NewPool(2)
		m, source := model.New(cp.Config, pool), &model.CheckpointSource{C: cp}
		if err := m.Load(source, nil, true); err != nil {
			t.Fatal(err)
		}
		rows := make([]model.Rows, cp.Config.Layers)
		for l := range rows {
			if rows[l], err = model.LoadRows(cp.Config, source, l, nil); err != nil {
				t.Fatal(err)
			}
		}
		ids := make([]int32, 201)
		for i := range ids {
			ids[i] = int32(3 + i*37%256)
		}
		got := batchLogits(m, rows, ids, true)
		step := stepLogits(m, rows, ids, true)
		pool.Close()
		if err := cp.Close(); err != nil {
			t.Error(err)
		}
		vocab := m.Config.Vocab
		if first, ok := same[c.what]; !ok {
			r := newReference(t, "llama2", false)
			for k := range r.invFreq {
				r.invFreq[k] = c.inv(float64(2 * k))
			}
			want := r.forward(ids)
			near(t, c.spelling, got, want, largest(want))
			near(t, c.spelling+" step by step", step, want, largest(want))
			same[c.what] = got
		} else if !slices.Equal(got, first) {
			t.Errorf("%s: other logits than another spelling of %s", c.spelling, c.what)
		}
		for _, other := range order {
			if x, ok := same[other]; ok && other != c.what {
				far, near0 := apart(got[200*vocab:], x[200*vocab:]), apart(got[:vocab], x[:vocab])
				if near0 != 0 || far < 0.02*largest(x) {
					t.Errorf("%s: differs from %s by %v at position 0, by %v at position 200", c.spelling, other, near0, far)
				}
			}
		}
	}
}

// apart is the largest difference.
func apart(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}
