package checkpointtest

import (
	"bytes"
	"testing"

	"github.com/nlpodyssey/safetensors"
)

func TestTokenizerHasNoGap(t *testing.T) {
	vocab := Tokenizer()["model"].(map[string]any)["vocab"].(map[string]int)
	seen := map[int]string{}
	for s, id := range vocab {
		if other, dup := seen[id]; dup {
			t.Errorf("id %d is %q and %q", id, s, other)
		}
		seen[id] = s
	}
	for id := range TokenizerSize {
		if _, ok := seen[id]; !ok {
			t.Errorf("id %d is missing", id)
		}
	}
	if len(seen) != TokenizerSize {
		t.Errorf("%d tokens, want %d", len(seen), TokenizerSize)
	}
	for token, id := range map[string]int{"ab": 260, "abc": 261, "ð": FirstByte + 0xf0, "Ł": FirstByte + 0x9f, "ĺ": FirstByte + 0x98, "Ģ": FirstByte + 0x80, "Ġ": FirstByte + 32} {
		if vocab[token] != id {
			t.Errorf("%q is %d, want %d", token, vocab[token], id)
		}
	}
}

// TestEncode reads our files with an independent reader.
func TestEncode(t *testing.T) {
	ts := Tiny().Weights()
	st, err := safetensors.Deserialize(Encode(ts))
	if err != nil {
		t.Fatal(err)
	}
	if st.Len() != len(ts) || len(ts) != 3+3*9 {
		t.Fatalf("%d tensors of %d", st.Len(), len(ts))
	}
	for _, w := range ts {
		got, ok := st.Tensor(w.Name)
		if !ok || got.DType().String() != w.DType || !bytes.Equal(got.Data(), w.Data) {
			t.Errorf("%s differs", w.Name)
		}
	}
}

func TestWeightsDependOnSeedAndNameOnly(t *testing.T) {
	a := Find(Tiny().Weights(), "model.norm.weight").Values()
	m := Tiny()
	m.Tied, m.Layers, m.NormDType, m.DType = true, 5, "F32", "F16"
	b := Find(m.Weights(), "model.norm.weight").Values()
	m.Seed = 2
	c := Find(m.Weights(), "model.norm.weight").Values()
	same := true
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("element %d: %v and %v", i, a[i], b[i])
		}
		same = same && a[i] == c[i]
	}
	if same {
		t.Error("the seed changes nothing")
	}
}
