package ladder

import (
	"context"

	"neuroprefetcher/format/tensors"
	"neuroprefetcher/kernels"
	"neuroprefetcher/prep/lowrank"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/runtime/predictor"
)

// leftOut sums, for each sparse layer and neuron, activations over the tokens that leave the neuron out.
type leftOut struct {
	sum    [][]float64 // (M) per layer from the dense prefix
	tokens [][]int
}

func newLeftOut(layers, neurons int) *leftOut {
	o := &leftOut{}
	for range layers {
		o.sum, o.tokens = append(o.sum, make([]float64, neurons)), append(o.tokens, make([]int, neurons))
	}
	return o
}

// add takes layer l's activations (T, M) and active sets.
func (o *leftOut) add(p *pass, l int, k *picker) {
	m := p.f.w.c.Intermediate
	sum, tokens := o.sum[l-p.r.Dense], o.tokens[l-p.r.Dense]
	p.f.pool.Run(m, 64, func(lo, hi int) {
		for i := range p.strip.ids {
			mask := k.mask[i*p.words : (i+1)*p.words]
			for n := lo; n < hi; n++ {
				if mask[n>>6]>>(n&63)&1 == 0 {
					sum[n] += float64(p.f.act[i*m+n])
					tokens[n]++
				}
			}
		}
	})
}

// Means runs the selectors of one bundle over the given windows, without means and with no limit to what is read, and writes
// to path what a neuron that is left out adds on average: the tensors of bundle.MemberMeans. Layers of the dense prefix have
// zeros. The selection of the figures, Options.Given apart, is Run's.
func Means(ctx context.Context, e *stage.Env, o Options, path string) error {
	bs, err := openBundles(o.Bundles)
	if err != nil {
		return err
	}
	o.Means, o.Perfect, o.Budgets, o.Margins = NoMeans, false, nil, nil
	rungs, _, err := rungs(bs, o)
	if err != nil {
		return err
	}
	l := &run{e: e, o: o, bs: bs, rungs: rungs, report: &Report{}}
	l.loadGiven()
	longest := 1
	for _, st := range l.strips {
		longest = max(longest, len(st.ids))
	}
	f, sels, _, err := l.prepare(ctx, longest, 1, longest)
	if err != nil {
		return err
	}
	defer f.w.close()
	c := f.w.c
	want := wantsOf(rungs, sels)
	passes := make([]*pass, len(rungs))
	for i, r := range rungs {
		if passes[i], err = newPass(f, r, sels[r.key()], longest); err != nil {
			return err
		}
		passes[i].left = newLeftOut(c.Layers-r.Dense, c.Intermediate)
	}
	p := stage.NewProgress(e, "means")
	p.Start("means", int64(len(l.strips)*len(rungs)), "windows")
	defer p.Done()
	for _, st := range l.strips {
		s, _, err := f.pass(ctx, st, &want, false)
		if err != nil {
			return err
		}
		for _, pass := range passes {
			if _, err := pass.run(ctx, s, nil); err != nil {
				return err
			}
			p.Add(1)
		}
	}
	var entries []tensors.Entry
	for _, pass := range passes {
		for l := 1; l < c.Layers; l++ {
			mean, sum := make([]float64, c.Intermediate), make([]float32, c.Hidden)
			if l >= pass.r.Dense {
				if err := pass.left.mean(f, l, l-pass.r.Dense, mean, sum); err != nil {
					return err
				}
			}
			name := pass.r.Selector
			entries = append(entries, lowrank.Halves(predictor.MeanName(name, l), mean), tensors.F32Entry(predictor.SumName(name, l), []int{c.Hidden}, sum))
		}
	}
	return tensors.Write(path, entries, nil)
}

// mean gives a layer's means (M), and Σ_j mean_j·down_j (H) of the means as they are stored.
func (o *leftOut) mean(f *forward, l, at int, mean []float64, sum []float32) error {
	rows, err := f.w.layer(l)
	if err != nil {
		return err
	}
	h, total := len(sum), make([]float64, len(sum))
	down := make([]float32, h)
	for n := range mean {
		if o.tokens[at][n] == 0 {
			continue
		}
		mean[n] = o.sum[at][n] / float64(o.tokens[at][n])
		stored := float64(kernels.F16Value(kernels.F16Bits(float32(mean[n]))))
		kernels.F16ToF32(down, rows.Mem[n*rows.Stride+2*h:][:h])
		for i, v := range down {
			total[i] += stored * float64(v)
		}
	}
	for i, v := range total {
		sum[i] = float32(v)
	}
	return nil
}
