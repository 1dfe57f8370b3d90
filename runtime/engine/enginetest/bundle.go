package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

// Root is the top folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// Tiny packs the tiny checkpoint, with random scores for the static selector.
func Tiny(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Root(t), "pipelines", "tiny", "checkpoint")
	c, err := checkpoint.Open(dir)
	check(t, err)
	defer c.Close()
	src := &model.CheckpointSource{C: c}
	m := model.New(c.Config, nil)
	check(t, m.Load(src, nil, true))
	p := parts{config: c.Config, embed: m.Embed, head: m.Head, norm: m.Norm, layers: m.Layers, files: map[string][]byte{}}
	for l := range c.Config.Layers {
		rows, err := model.LoadRows(c.Config, src, l, nil)
		check(t, err)
		p.rows = append(p.rows, rows)
	}
	for _, f := range []string{bundle.MemberConfig, bundle.MemberTokenizer, bundle.MemberTemplate} {
		p.files[f], err = os.ReadFile(filepath.Join(dir, f))
		check(t, err)
	}
	return p.write(t)
}

// parts is a model in memory.
type parts struct {
	config      *checkpoint.Config
	embed, head []uint16 // (vocab, H)
	norm        []float32
	layers      []*model.Layer
	rows        []model.Rows
	files       map[string][]byte
}

// write packs the parts and returns the bundle's folder. K_max is two thirds of the neurons, the dense prefix 2 layers.
func (p *parts) write(t testing.TB) string {
	t.Helper()
	cfg, dir := p.config, t.TempDir()
	g := bundle.NewGeometry(cfg.Hidden, cfg.Intermediate, cfg.Layers, 0)
	w, err := bundle.OpenRows(filepath.Join(dir, bundle.MemberRows), g)
	check(t, err)
	var crcs []uint32
	rec := make([]byte, g.Stride)
	for _, rows := range p.rows {
		check(t, w.BeginLayer(len(crcs)))
		for n := range rows.N {
			clear(rec)
			copy(rec, kernels.U16Bytes(rows.Mem[n*rows.Stride:(n+1)*rows.Stride]))
			check(t, w.PutRecords(rec))
		}
		crc, err := w.EndLayer()
		check(t, err)
		crcs = append(crcs, crc)
	}
	_, err = w.Finish("")
	check(t, err)
	check(t, w.Close())

	h, q, kv := cfg.Hidden, cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	es := []tensors.Entry{
		tensors.F16Entry("model.embed_tokens.weight", []int{cfg.Vocab, h}, p.embed), tensors.F16Entry("lm_head.weight", []int{cfg.Vocab, h}, p.head),
		tensors.F32Entry("model.norm.weight", []int{h}, p.norm),
	}
	var scores []tensors.Entry
	r := rand.New(rand.NewPCG(1, 2))
	for l, x := range p.layers {
		n := fmt.Sprintf("model.layers.%d.", l)
		es = append(es, tensors.F32Entry(n+"input_layernorm.weight", []int{h}, x.AttnNorm), tensors.F32Entry(n+"post_attention_layernorm.weight", []int{h}, x.MLPNorm),
			tensors.F16Entry(n+"self_attn.q_proj.weight", []int{q, h}, x.Q), tensors.F16Entry(n+"self_attn.k_proj.weight", []int{kv, h}, x.K),
			tensors.F16Entry(n+"self_attn.v_proj.weight", []int{kv, h}, x.V), tensors.F16Entry(n+"self_attn.o_proj.weight", []int{h, q}, x.O))
		s := make([]float32, cfg.Intermediate)
		for i := range s {
			s[i] = r.Float32()
		}
		if l > 0 {
			scores = append(scores, tensors.F32Entry(predictor.StaticName(l), []int{len(s)}, s), tensors.I32Entry(predictor.PinsName(l), []int{2}, []int32{3, 70}))
		}
	}
	check(t, tensors.Write(filepath.Join(dir, bundle.MemberResident), es, nil))
	check(t, tensors.Write(filepath.Join(dir, bundle.MemberCentroids), scores, nil))

	out := filepath.Join(t.TempDir(), "bundle")
	b, err := bundle.NewWriter(out)
	check(t, err)
	defer b.Close()
	for _, f := range []string{bundle.MemberRows, bundle.MemberResident, bundle.MemberCentroids} {
		check(t, b.Link(context.Background(), f, filepath.Join(dir, f), "", nil))
	}
	for name, data := range p.files {
		check(t, b.Put(name, data))
	}
	kMax := cfg.Intermediate * 2 / 3
	check(t, b.Publish(context.Background(), &bundle.Manifest{
		Format: bundle.Format{Reader: bundle.ReaderVersion, Writer: bundle.ReaderVersion}, Tool: "test", Model: *cfg, Rows: g, LayerCRC: crcs,
		Sparse: &bundle.Sparse{KMax: kMax, Sparsity: 1 - float64(kMax)/float64(cfg.Intermediate), Selectors: []string{bundle.SelectorStatic}, DefaultDense: 2},
	}))
	return out
}

// Open opens a bundle with a context of 256 tokens and two threads unless o says otherwise.
func Open(t testing.TB, dir string, o engine.Options) *engine.Engine {
	t.Helper()
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Context == 0 {
		o.Context = 256
	}
	if o.Threads == 0 {
		o.Threads = 2
	}
	e, err := engine.Open(context.Background(), dir, o)
	check(t, err)
	t.Cleanup(e.Close)
	return e
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Modes are the ways to run a bundle, the layers behind the first one read from disk where the mode can.
func Modes() []engine.Options {
	return []engine.Options{{Mode: engine.ModeResident}, {Mode: engine.ModeStream, Dense: 1}, {Mode: engine.ModeSparse, Dense: 1}}
}
