package engine

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
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/storage"
)

const tinyCheckpoint = "../../pipelines/tiny/checkpoint"

// buildBundle makes a bundle of the tiny checkpoint with random static scores, by the format packages alone.
func buildBundle(t testing.TB, recordAlign int) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := checkpoint.Open(tinyCheckpoint)
	must(err)
	defer c.Close()
	cfg, src, dir := c.Config, &model.CheckpointSource{C: c}, t.TempDir()
	g := bundle.NewGeometry(cfg.Hidden, cfg.Intermediate, cfg.Layers, recordAlign)
	w, err := bundle.OpenRows(filepath.Join(dir, bundle.MemberRows), g)
	must(err)
	var crcs []uint32
	for l := range cfg.Layers {
		rows, err := model.LoadRows(cfg, src, l, nil)
		must(err)
		must(w.BeginLayer(l))
		recs := make([]byte, g.Stride)
		for n := range rows.N {
			clear(recs)
			copy(recs, kernels.U16Bytes(rows.Mem[n*rows.Stride:(n+1)*rows.Stride]))
			must(w.PutRecords(recs))
		}
		crc, err := w.EndLayer()
		must(err)
		crcs = append(crcs, crc)
	}
	side := filepath.Join(dir, bundle.MemberRowsCRC)
	if g.Trailer {
		side = ""
	}
	_, err = w.Finish(side)
	must(err)
	must(w.Close())

	m := model.New(cfg, nil)
	must(m.Load(src, nil, true))
	h, q, kv := cfg.Hidden, m.QDim(), m.KVDim()
	es := []tensors.Entry{
		tensors.F16Entry("model.embed_tokens.weight", []int{cfg.Vocab, h}, m.Embed), tensors.F16Entry("lm_head.weight", []int{cfg.Vocab, h}, m.Head),
		tensors.F32Entry("model.norm.weight", []int{h}, m.Norm),
	}
	var scores []tensors.Entry
	r := rand.New(rand.NewPCG(1, 2))
	for l, x := range m.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		es = append(es, tensors.F32Entry(p+"input_layernorm.weight", []int{h}, x.AttnNorm), tensors.F32Entry(p+"post_attention_layernorm.weight", []int{h}, x.MLPNorm),
			tensors.F16Entry(p+"self_attn.q_proj.weight", []int{q, h}, x.Q), tensors.F16Entry(p+"self_attn.k_proj.weight", []int{kv, h}, x.K),
			tensors.F16Entry(p+"self_attn.v_proj.weight", []int{kv, h}, x.V), tensors.F16Entry(p+"self_attn.o_proj.weight", []int{h, q}, x.O))
		s := make([]float32, cfg.Intermediate)
		for i := range s {
			s[i] = r.Float32()
		}
		if l > 0 {
			scores = append(scores, tensors.F32Entry(predictor.StaticName(l), []int{len(s)}, s), tensors.I32Entry(predictor.PinsName(l), []int{2}, []int32{3, 70}))
		}
	}
	must(tensors.Write(filepath.Join(dir, bundle.MemberResident), es, nil))
	must(tensors.Write(filepath.Join(dir, bundle.MemberCentroids), scores, nil))

	out := filepath.Join(t.TempDir(), "bundle")
	b, err := bundle.NewWriter(out)
	must(err)
	defer b.Close()
	for _, f := range []string{bundle.MemberRows, bundle.MemberResident, bundle.MemberCentroids} {
		must(b.Link(context.Background(), f, filepath.Join(dir, f), "", nil))
	}
	if side != "" {
		must(b.Link(context.Background(), bundle.MemberRowsCRC, side, "", nil))
	}
	for _, f := range []string{bundle.MemberConfig, bundle.MemberTokenizer} {
		data, err := os.ReadFile(filepath.Join(tinyCheckpoint, f))
		must(err)
		must(b.Put(f, data))
	}
	must(b.Publish(context.Background(), &bundle.Manifest{
		Format: bundle.Format{Reader: bundle.ReaderVersion, Writer: bundle.ReaderVersion}, Tool: "test", Model: *cfg, Rows: g, LayerCRC: crcs,
		Sparse: &bundle.Sparse{KMax: 300, Sparsity: 1 - 300.0/448, Selectors: []string{bundle.SelectorStatic}, DefaultDense: 2},
	}))
	return out
}

// randomSelector gives fresh random scores for every token and layer, so that active sets jump about.
type randomSelector struct {
	r    *rand.Rand
	pins []int32
}

func (s *randomSelector) Name() string                               { return "random" }
func (s *randomSelector) NeedsLayer0() bool                          { return false }
func (s *randomSelector) Observe(*kernels.Pool, *predictor.Features) {}
func (s *randomSelector) Pins(int) []int32                           { return s.pins }
func (s *randomSelector) Bytes() int64                               { return 0 }
func (s *randomSelector) Scores(_ int, dst []float32) {
	for i := range dst {
		dst[i] = s.r.Float32()
	}
}

func openEngine(t testing.TB, dir string, o Options) *Engine {
	t.Helper()
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Context == 0 {
		o.Context = 256
	}
	if o.Storage == (storage.Options{}) {
		o.Storage = storage.Options{Gap: 0}
	}
	e, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
