package model_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/model"
)

// many runs sequences side by side, sequence i beginning begin[i] steps late, and returns every token's logits.
func many(m *model.Model, rows []model.Rows, seqs [][]int32, begin []int) [][][]float32 {
	c := m.Config
	b := m.NewMany(len(seqs))
	kv := make([]*model.KV, len(seqs))
	out := make([][][]float32, len(seqs))
	for i, s := range seqs {
		kv[i] = model.NewKV(c, c.Layers, len(s), false)
	}
	for step := 0; ; step++ {
		var ids []int32
		var pos, who []int
		for i, s := range seqs {
			if at := step - begin[i]; at >= 0 && at < len(s) {
				ids, pos, who = append(ids, s[at]), append(pos, at), append(who, i)
			}
		}
		if len(ids) == 0 {
			return out
		}
		x := make([]float32, len(ids)*c.Hidden)
		m.EmbedTokens(x, ids)
		for l := range c.Layers {
			caches := make([]model.LayerKV, len(who))
			for j, i := range who {
				caches[j] = kv[i].Layers[l]
			}
			b.Attention(m.Layers[l], x, caches, pos)
			b.MLP(m.Layers[l], rows[l], x, len(ids), nil)
		}
		logits := make([]float32, len(ids)*c.Vocab)
		b.Logits(logits, x, 0, len(ids))
		for j, i := range who {
			out[i] = append(out[i], logits[j*c.Vocab:(j+1)*c.Vocab])
		}
	}
}

// TestMany compares every token's logits with those of Step running the sequence alone, on every architecture; and asks
// that a sequence's bits depend neither on the others nor on the threads.
func TestMany(t *testing.T) {
	dirs, err := os.ReadDir(filepath.Join("testdata", "arch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		t.Run(dir.Name(), func(t *testing.T) {
			ck, err := checkpoint.Open(filepath.Join("testdata", "arch", dir.Name()))
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			c, src := ck.Config, &model.CheckpointSource{C: ck}
			load := func(threads int) (*model.Model, []model.Rows) {
				pool := kernels.NewPool(threads)
				t.Cleanup(pool.Close)
				m := model.New(c, pool)
				if err := m.Load(src, nil, true); err != nil {
					t.Fatal(err)
				}
				rows := make([]model.Rows, c.Layers)
				for l := range rows {
					if rows[l], err = model.LoadRows(c, src, l, nil); err != nil {
						t.Fatal(err)
					}
				}
				return m, rows
			}
			m, rows := load(2)
			seqs, begin := make([][]int32, 5), []int{0, 3, 0, 7, 1}
			for i := range seqs {
				for at := range 9 + 2*i {
					seqs[i] = append(seqs[i], int32((31*i+17*at+at*at)%c.Vocab))
				}
			}
			got := many(m, rows, seqs, begin)
			s := m.NewStep(32)
			off := make([]int, c.Intermediate)
			for i := range off {
				off[i] = i * rows[0].Stride
			}
			for i, seq := range seqs {
				kv := model.NewKV(c, c.Layers, len(seq), false)
				for at, id := range seq {
					x, want := make([]float32, c.Hidden), make([]float32, c.Vocab)
					m.EmbedTokens(x, []int32{id})
					for l := range c.Layers {
						s.Attention(m.Layers[l], x, kv.Layers[l], at)
						s.BeginMLP(m.Layers[l], x)
						s.MLPRows(rows[l].Mem, off)
						s.EndMLP(x)
					}
					s.Logits(want, x)
					largest := 0.0
					for _, v := range want {
						largest = max(largest, math.Abs(float64(v)))
					}
					for v := range want {
						if math.Abs(float64(got[i][at][v]-want[v])) > 2e-3*largest {
							t.Fatalf("sequence %d token %d logit %d: %v, want %v of at most %v", i, at, v, got[i][at][v], want[v], largest)
						}
					}
				}
			}
			one, rows1 := load(1)
			for i, seq := range seqs {
				alone := many(one, rows1, [][]int32{seq}, []int{0})[0]
				for at := range seq {
					if !slices.Equal(alone[at], got[i][at]) {
						t.Fatalf("sequence %d token %d: other bits alone", i, at)
					}
				}
			}
		})
	}
}
