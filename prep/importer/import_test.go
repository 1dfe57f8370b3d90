package importer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf/gguftest"
)

// isRefusal: one line of bad input that names the file and what is wrong.
func isRefusal(err error, path, want string) bool {
	return err != nil && errors.Is(err, format.ErrInput) && strings.HasPrefix(err.Error(), path+": ") && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "\n")
}

func setF32(x *gguftest.Tensor, at int, v float32) {
	vals := make([]float32, len(x.Data)/2)
	if x.Type == gguftest.Types["F32"] {
		vals = vals[:len(vals)/2]
	}
	vals[at] = v
	x.Type, x.Data = gguftest.Types["F32"], gguftest.F32(vals)
}

// TestRefused: nothing is published, nothing is left behind, and the message names the key or tensor.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		what   string
		arch   string
		change func(*gguftest.File)
		want   string
	}{
		{"architecture", "llama", func(f *gguftest.File) { f.Set("general.architecture", "gemma2") }, `"gemma2" is not supported`},
		{"no architecture", "llama", func(f *gguftest.File) { f.Delete("general.architecture") }, `"general.architecture" is missing`},
		{"split", "llama", func(f *gguftest.File) { f.Set("split.count", uint16(3)) }, `"split.count"`},
		{"no layers", "llama", func(f *gguftest.File) { f.Delete("llama.block_count") }, `"llama.block_count" is missing`},
		{"too many layers", "llama", func(f *gguftest.File) { f.Set("llama.block_count", uint32(1<<31)) }, `"llama.block_count": 2147483648`},
		{"layers of another kind", "llama", func(f *gguftest.File) { f.Set("llama.block_count", "two") }, `"llama.block_count": is a string`},
		{"layers larger than a number", "llama", func(f *gguftest.File) { f.Set("llama.block_count", uint64(1<<63)) }, `"llama.block_count"`},
		{"heads per layer", "llama", func(f *gguftest.File) { f.Set("llama.attention.head_count_kv", []uint32{2, 1}) }, `"llama.attention.head_count_kv"`},
		{"more kv heads", "llama", func(f *gguftest.File) { f.Set("llama.attention.head_count_kv", uint32(8)) }, `"llama.attention.head_count_kv": 8`},
		{"kv heads do not divide", "llama", func(f *gguftest.File) { f.Set("llama.attention.head_count_kv", uint32(3)) }, `"llama.attention.head_count_kv": 3`},
		{"heads do not divide", "llama", func(f *gguftest.File) { f.Set("llama.attention.head_count", uint32(6)) }, `"llama.attention.key_length" is missing`},
		{"partial rotation", "llama", func(f *gguftest.File) { f.Set("llama.rope.dimension_count", uint32(8)) }, `"llama.rope.dimension_count": 8`},
		{"value size", "llama", func(f *gguftest.File) { f.Set("llama.attention.value_length", uint32(8)) }, `"llama.attention.value_length": 8`},
		{"no epsilon", "llama", func(f *gguftest.File) { f.Delete("llama.attention.layer_norm_rms_epsilon") }, `layer_norm_rms_epsilon" is missing`},
		{"epsilon", "llama", func(f *gguftest.File) {
			f.Set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN()))
		}, `layer_norm_rms_epsilon"`},
		{"theta", "llama", func(f *gguftest.File) { f.Set("llama.rope.freq_base", float32(-1)) }, `"llama.rope.freq_base"`},
		{"yarn", "llama", func(f *gguftest.File) { f.Set("llama.rope.scaling.type", "yarn") }, `"yarn" is not supported`},
		{"linear without factor", "llama", func(f *gguftest.File) { f.Set("llama.rope.scaling.type", "linear") }, `"llama.rope.scaling.factor" is missing`},
		{"factors", "llama", func(f *gguftest.File) {
			f.Add("rope_freqs.weight", "F32", gguftest.F32([]float32{1, 2, 1, 2, 1, 2, 1, 2}), 8)
		}, `tensor "rope_freqs.weight": the factors`},
		{"factors of another size", "llama", func(f *gguftest.File) { f.Add("rope_freqs.weight", "F32", make([]byte, 16), 4) }, `tensor "rope_freqs.weight": shape [4]`},
		{"long factors", "llama", func(f *gguftest.File) { f.Add("rope_factors_long.weight", "F32", make([]byte, 32), 8) }, `tensor "rope_factors_long.weight"`},
		{"experts", "llama", func(f *gguftest.File) { f.Set("llama.expert_count", uint32(8)) }, `"llama.expert_count": 8`},
		{"attention scale", "llama", func(f *gguftest.File) { f.Set("llama.attention.scale", float32(0.1)) }, `"llama.attention.scale"`},
		{"not causal", "llama", func(f *gguftest.File) { f.Set("llama.attention.causal", false) }, `"llama.attention.causal"`},
		{"tensor missing", "llama", func(f *gguftest.File) { f.Find("blk.1.ffn_up.weight").Name = "blk.1.ffn_upp.weight" }, `tensor "blk.1.ffn_up.weight" is missing`},
		{"tensor left over", "llama", func(f *gguftest.File) { f.Add("blk.0.attn_q_norm.weight", "F32", make([]byte, 64), 16) }, `tensor "blk.0.attn_q_norm.weight" is not part`},
		{"bias in llama", "llama", func(f *gguftest.File) { f.Add("blk.0.attn_q.bias", "F32", make([]byte, 256), 64) }, `tensor "blk.0.attn_q.bias" is not part`},
		{"bias missing in qwen2", "qwen2", func(f *gguftest.File) { f.Find("blk.0.attn_k.bias").Name = "blk.0.attn_k.bia" }, `tensor "blk.0.attn_k.bias" is missing`},
		{"shape", "llama", func(f *gguftest.File) { f.Find("blk.0.ffn_down.weight").Dims = []uint64{64, 96} }, `tensor "blk.0.ffn_down.weight": shape [96 64], want [64 96]`},
		{"no embedding", "llama", func(f *gguftest.File) { f.Find("token_embd.weight").Name = "x" }, `tensor "token_embd.weight" is missing`},
		{"head of another size", "llama", func(f *gguftest.File) {
			x := f.Find("output.weight")
			x.Dims, x.Data = []uint64{64, 299}, x.Data[:299*128]
		}, `tensor "output.weight": shape [299 64]`},
		{"unreadable type", "llama", func(f *gguftest.File) {
			x := f.Find("blk.1.ffn_norm.weight")
			x.Type, x.Data = 26, make([]byte, 256)
		}, `tensor "blk.1.ffn_norm.weight": type I32 is not supported`},
		{"more tokens than rows", "llama", func(f *gguftest.File) { byteLevelKeys(f, "smollm", 301) }, `301 tokens`},
		{"overflow", "llama", func(f *gguftest.File) { setF32(f.Find("blk.1.attn_k.weight"), 64*5+3, 65520) }, `tensor "blk.1.attn_k.weight": row 5, column 3: the value 65520 is beyond float16`},
		{"infinite", "llama", func(f *gguftest.File) { setF32(f.Find("output.weight"), 0, float32(math.Inf(-1))) }, `tensor "output.weight": row 0, column 0: the value is -Inf`},
		{"NaN", "llama", func(f *gguftest.File) { setF32(f.Find("blk.0.ffn_gate.weight"), 70, float32(math.NaN())) }, `tensor "blk.0.ffn_gate.weight": row 1, column 6: the value is NaN`},
		{"NaN in a norm", "llama", func(f *gguftest.File) { setF32(f.Find("output_norm.weight"), 7, float32(math.NaN())) }, `tensor "output_norm.weight": row 0, column 7: the value is NaN`},
	} {
		f := tiny(c.arch).file()
		c.change(f)
		dir := t.TempDir()
		path := f.Write(t, filepath.Join(dir, "m.gguf"))
		_, err := Import(context.Background(), path, filepath.Join(dir, "out"), Options{})
		if !isRefusal(err, path, c.want) {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
		if left := names(t, dir); !slices.Equal(left, []string{"m.gguf"}) {
			t.Errorf("%s: left %q", c.what, left)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// content of all files of a directory.
func content(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, n := range names(t, dir) {
		x, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %x\n", n, len(x), x)
	}
	return b.String()
}

// TestPublish: a good output survives a failed or cancelled run unchanged and is replaced by a good one; the same input gives the same bytes.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	out, good, bad := filepath.Join(dir, "deep", "out"), tiny("llama"), tiny("llama").file()
	path := good.file().Write(t, filepath.Join(dir, "good.gguf"))
	if _, err := Import(context.Background(), path, out, Options{}); err != nil {
		t.Fatal(err)
	}
	first := content(t, out)
	if got, want := names(t, out), []string{templateName, configName, generationName, weightsName, tokenizerName, tokConfigName}; !slices.Equal(got, want) {
		t.Fatalf("files %q, want %q", got, want)
	}

	setF32(bad.Find("output.weight"), 300*64-1, float32(math.NaN())) // the very last value
	badPath := bad.Write(t, filepath.Join(dir, "bad.gguf"))
	if _, err := Import(context.Background(), badPath, out, Options{}); !isRefusal(err, badPath, `tensor "output.weight": row 299, column 63`) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err := Import(ctx, path, out, Options{Progress: func(done, total int64) {
		if calls++; calls == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || calls != 5 {
		t.Fatalf("after %d calls: %v", calls, err)
	}
	if content(t, out) != first {
		t.Fatal("a failed run changed the output")
	}

	var last, total int64
	if _, err := Import(context.Background(), path, out, Options{Progress: func(d, n int64) {
		if d <= last || d > n || (total != 0 && n != total) {
			t.Errorf("progress %d of %d after %d of %d", d, n, last, total)
		}
		last, total = d, n
	}}); err != nil {
		t.Fatal(err)
	}
	if last != total || last == 0 {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	if content(t, out) != first {
		t.Error("the same input gives other bytes")
	}

	// A model without a template replaces one with it: no file of the old one stays.
	path = good.file().Delete("tokenizer.chat_template").Write(t, filepath.Join(dir, "good.gguf"))
	if r, err := Import(context.Background(), path, out, Options{}); err != nil || r.ChatTemplate {
		t.Fatal(r, err)
	}
	if got := names(t, out); slices.Contains(got, templateName) || len(got) != 5 {
		t.Errorf("files %q", got)
	}
	if got := names(t, filepath.Dir(out)); !slices.Equal(got, []string{"out"}) {
		t.Errorf("left %q", got)
	}
}

// TestTargets: what must not be replaced is refused, and what may be is.
func TestTargets(t *testing.T) {
	dir := t.TempDir()
	path := tiny("llama").file().Write(t, filepath.Join(dir, "m.gguf"))
	try := func(out string) error {
		_, err := Import(context.Background(), path, out, Options{})
		return err
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := try(file); !isRefusal(err, file, "is a file") {
		t.Error(err)
	}
	if err := try(dir); !isRefusal(err, dir, `holds "file"`) {
		t.Error(err)
	}
	if err := try(filepath.Join(file, "below")); !isRefusal(err, filepath.Join(file, "below"), "cannot be written") {
		t.Error(err)
	}
	if err := try(""); !errors.Is(err, format.ErrInput) {
		t.Error(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := try(empty); err != nil {
		t.Error(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(empty, link); err != nil {
		t.Fatal(err)
	}
	if err := try(link); err != nil {
		t.Error(err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Error("the file was touched")
	}
	if os.Getuid() != 0 { // root may write anywhere
		locked := filepath.Join(dir, "locked")
		if err := os.Mkdir(locked, 0o555); err != nil {
			t.Fatal(err)
		}
		if err := try(filepath.Join(locked, "out")); !isRefusal(err, filepath.Join(locked, "out"), "cannot be written") {
			t.Error(err)
		}
	}
}

// TestLeftovers: what a killed run left is removed; a run at work is respected.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := tiny("llama").file().Write(t, filepath.Join(dir, "m.gguf"))
	stale := filepath.Join(dir, ".out.import-0011223344556677")
	if err := os.Mkdir(stale, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, weightsName), make([]byte, 100), 0o666); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(stale)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if _, err := Import(context.Background(), path, out, Options{}); !isRefusal(err, out, "another import is writing it") {
		t.Error(err)
	}
	lock.Close()
	if _, err := Import(context.Background(), path, out, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"m.gguf", "out"}) {
		t.Errorf("left %q", got)
	}
}

// TestReplace: where two directories cannot be swapped in one step, they are in three.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "who"), []byte(filepath.Base(d)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for i, swap := range []func(a, b string) error{replace, exchange} {
		if err := swap(a, b); err != nil {
			t.Fatal(err)
		}
		want := []string{"b", "a"}[i]
		if got, err := os.ReadFile(filepath.Join(a, "who")); err != nil || string(got) != want {
			t.Errorf("swap %d: %q, %v", i, got, err)
		}
	}
	if err := replace(filepath.Join(dir, "absent"), b); err == nil {
		t.Error("an absent directory replaces one")
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("left %q", got)
	}
}

// TestDamaged: a file cut short or not a GGUF at all.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	b := tiny("llama").file().Bytes()
	path := filepath.Join(dir, "m.gguf")
	for want, data := range map[string][]byte{`tensor "output.weight": ends at byte`: b[:len(b)-1], "not a gguf file": append([]byte("PK\x03\x04"), b...), "needs": b[:3000]} {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(context.Background(), path, filepath.Join(dir, "out"), Options{}); !isRefusal(err, path, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
