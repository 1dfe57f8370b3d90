package synthetic

import (
	"context"
	"os"
	"strconv"
	"testing"

	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/predictor"
)

// BenchmarkStep is one replayed token. NP_BENCH_SHAPE names a shape and NP_BENCH_DIR where its bundle lies or will be
// written, NP_BENCH_MEMORY the budget in bytes, NP_BENCH_MODE the mode; without them a small bundle is made.
func BenchmarkStep(b *testing.B) {
	shape, dir, mode, memory := small, os.Getenv("NP_BENCH_DIR"), engine.ModeSparse, int64(1<<30)
	if dir == "" {
		dir = b.TempDir()
	}
	if s := os.Getenv("NP_BENCH_SHAPE"); s != "" {
		var err error
		if shape, err = ShapeOf(s); err != nil {
			b.Fatal(err)
		}
	}
	if m := os.Getenv("NP_BENCH_MEMORY"); m != "" {
		var err error
		if memory, err = strconv.ParseInt(m, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	if m := os.Getenv("NP_BENCH_MODE"); m != "" {
		mode = m
	}
	path, _, err := Ensure(context.Background(), dir, shape, 1, "benchmark", nil)
	if err != nil {
		b.Fatal(err)
	}
	tr, err := NewTrace(TraceParams{shape.Layers, shape.Intermediate, shape.KMax, 64, DefaultReuse, DefaultRun, 1})
	if err != nil {
		b.Fatal(err)
	}
	dense := 0
	if shape == small {
		dense = 1
	}
	e, err := engine.Open(context.Background(), path, engine.Options{Mode: mode, Dense: dense, Memory: memory, Context: 512,
		Wrap: func(inner predictor.Selector, pl *engine.Plan) (predictor.Selector, error) {
			return NewReplay(tr, inner, pl.Dense, shape.Layers, shape.Intermediate, pl.KMax)
		}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Prefill(context.Background(), prompt); err != nil {
		b.Fatal(err)
	}
	step := func() {
		if e.Len() == e.Context() {
			e.Reset()
		}
		if _, err := e.Step(context.Background(), firstByteID); err != nil {
			b.Fatal(err)
		}
	}
	for range 3 {
		step()
	}
	e.ResetStats()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	s := e.Stats()
	b.ReportMetric(float64(s.StepIO.Bytes)/float64(s.Tokens), "read-B/op")
	b.ReportMetric(float64(s.IOWait.Microseconds())/float64(s.Tokens), "wait-µs/op")
}
