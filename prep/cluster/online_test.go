package cluster

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/calib/text"
	"neuroprefetcher/prep/capture"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/threshold"
	"neuroprefetcher/runtime/model"
	"neuroprefetcher/runtime/predictor"
)

// TestOnline decodes a calibration window token by token, as the engine does, and asks that layer 0's features and its
// gate centroid are those that capture and cluster saw: what is calibrated is what runs.
func TestOnline(t *testing.T) {
	const tiny = "../../pipelines/tiny/"
	ctx := context.Background()
	ck, err := checkpoint.Open(tiny + "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	cfg, files := ck.Config, []string{tiny + "calibration.txt"}
	e := &stage.Env{Work: t.TempDir(), Pool: kernels.NewPool(2)}
	defer e.Pool.Close()
	const tokens, window = 120, 40
	if _, err := threshold.Run(ctx, e, threshold.Options{Checkpoint: ck, Texts: files, Tokens: tokens, Window: window}); err != nil {
		t.Fatal(err)
	}
	if _, err := capture.Run(ctx, e, capture.Options{Checkpoint: ck, Texts: files, Tokens: tokens, Window: window}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(ctx, e, Options{Config: cfg, Centroids: 12}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(e.Work, "centroids")
	if _, err := Prune(ctx, e.Work, cfg, cfg.Intermediate/2, path); err != nil {
		t.Fatal(err)
	}
	cent, err := predictor.LoadCentroids(path, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := calib.OpenCapture(filepath.Join(e.Work, "capture"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	table, err := calib.OpenTable(calib.TablePath(filepath.Join(e.Work, "cluster"), 0, 0), cfg.Intermediate, tokens)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	ids, err := table.IDs()
	if err != nil {
		t.Fatal(err)
	}
	txt, err := text.Load(ck, files)
	if err != nil {
		t.Fatal(err)
	}

	src := &model.CheckpointSource{C: ck}
	m := model.New(cfg, e.Pool)
	if err := m.Load(src, nil, true); err != nil {
		t.Fatal(err)
	}
	rows, err := model.LoadRows(cfg, src, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	off := make([]int, rows.N)
	for i := range off {
		off[i] = i * rows.Stride
	}
	kv, step := model.NewKV(cfg, 1, window, false), m.NewStep(window)
	x, want := make([]float32, cfg.Hidden), make([]float32, cfg.Hidden)
	same := 0
	for pos := range window {
		i := window + pos // the second window
		near := func(j int, got []float32) {
			t.Helper()
			c.Feature(j, i, want)
			scale := 0.0
			for _, v := range want {
				scale = max(scale, math.Abs(float64(v)))
			}
			for n, v := range want {
				if math.Abs(float64(got[n]-v)) > 4e-3*scale {
					t.Fatalf("token %d feature %s[%d]: %v online, %v captured", i, predictor.FeatureNames[j], n, got[n], v)
				}
			}
		}
		m.EmbedTokens(x, txt.Tokens[i:i+1])
		near(0, x)
		near(1, step.Attention(m.Layers[0], x, kv.Layers[0], pos))
		near(2, step.BeginMLP(m.Layers[0], x))
		gate, _ := step.MLPRows(rows.Mem, off)
		if cent.Gate0(gate) == ids[i] {
			same++
		}
		step.EndMLP(x)
		near(3, x)
	}
	if same < window*9/10 { // a magnitude at a threshold may round either way
		t.Errorf("layer 0's centroid agrees for %d of %d tokens", same, window)
	}
	t.Logf("layer 0's centroid agrees for %d of %d tokens", same, window)
}
