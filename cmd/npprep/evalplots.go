package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"neuroprefetcher/cmd/internal/plots"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/prep/ladder"
)

// drawLadder draws the report's figures into dir and returns their files.
func drawLadder(dir string, r *ladder.Report) ([]string, error) {
	figures, names := ladderFigures(r)
	var files []string
	for i, f := range figures {
		made, err := plots.Write(dir, names[i], f)
		if err != nil {
			return files, err
		}
		files = append(files, made...)
	}
	return files, nil
}

// ladderFigures are, for each dense prefix, quality over bytes and the ladder; for each K_max in it, recall and how well
// the selectors predict, over the layers; and HellaSwag.
func ladderFigures(r *ladder.Report) (fs []plots.Figure, names []string) {
	add := func(name string, f plots.Figure) { fs, names = append(fs, f), append(names, name) }
	for _, d := range values(r.Rungs, func(x ladder.Result) int { return x.Dense }) {
		rungs := pickRungs(r.Rungs, func(x ladder.Result) bool { return x.Dense == d })
		ks := values(rungs, func(x ladder.Result) int { return x.KMax })
		note := fmt.Sprintf("%s, d = %d of %d layers, M = %d", strings.Join(r.Protocol.Bundles, ", "), d, r.Protocol.Layers, r.Protocol.Neurons)
		if r.Protocol.Scored > 0 {
			text := fmt.Sprintf("%s, %d windows of %d tokens", note, r.Protocol.Windows, r.Protocol.Window)
			add(fmt.Sprintf("frontier-d%d", d), frontier(rungs, text))
			add(fmt.Sprintf("ladder-d%d", d), bars(rungs, ks, "What leaving neurons out costs", text, "perplexity above dense (%)",
				func(x ladder.Result) (float64, float64) { return 100 * (x.Ratio - 1), 100 * x.RatioStdErr }))
			for _, k := range ks {
				of := pickRungs(rungs, func(x ladder.Result) bool { return x.KMax == k })
				at := fmt.Sprintf("%s, K_max %d", text, k)
				add(fmt.Sprintf("recall-d%d-k%d", d, k), overLayers(of, d, "What the chosen neurons hold", at, "share of importance",
					func(x ladder.Result) []float64 { return x.RecallLayers }))
				if f := accuracy(of, d, at); len(f.Series) > 0 {
					add(fmt.Sprintf("accuracy-d%d-k%d", d, k), f)
				}
			}
		}
		for i, h := range r.Rungs[0].HellaSwag {
			add(fmt.Sprintf("hellaswag-d%d-n%d", d, h.Shots), bars(rungs, ks, fmt.Sprintf("HellaSwag items answered as the dense model does, %d shots", h.Shots),
				fmt.Sprintf("%s, %d items, by the sum per character", note, h.Items), "share of items",
				func(x ladder.Result) (float64, float64) {
					return x.HellaSwag[i].SameNorm, x.HellaSwag[i].SameNormStdErr
				}))
		}
	}
	return fs, names
}

// values are the distinct values of f over the rungs behind the dense one, in order.
func values(rs []ladder.Result, f func(ladder.Result) int) (vs []int) {
	for _, x := range rs {
		if x.Selector != ladder.DenseName && !slices.Contains(vs, f(x)) {
			vs = append(vs, f(x))
		}
	}
	return vs
}

func pickRungs(rs []ladder.Result, ok func(ladder.Result) bool) (out []ladder.Result) {
	for _, x := range rs {
		if x.Selector != ladder.DenseName && ok(x) {
			out = append(out, x)
		}
	}
	return out
}

// kind names a rung but for its d and K_max. A cap is a share of K_max there, so that it is one series over all of them.
func kind(x ladder.Result) string {
	s := x.Selector
	if x.Choice == ladder.Perfect && x.Selector != ladder.BestName {
		s += ", right ids"
	}
	if x.ReadCap > 0 {
		s += fmt.Sprintf(", reads ≤ %.0f %%", math.Ceil(100*float64(x.ReadCap)/float64(x.KMax)))
	}
	if x.Margin > 0 {
		s += fmt.Sprintf(", margin %g", x.Margin)
	}
	return s
}

// kinds are the distinct ones in order.
func kinds(rs []ladder.Result) (ks []string) {
	for _, x := range rs {
		if !slices.Contains(ks, kind(x)) {
			ks = append(ks, kind(x))
		}
	}
	return ks
}

func frontier(rs []ladder.Result, note string) plots.Figure {
	f := plots.Figure{Kind: plots.Scatter, Title: "Quality over what is read", Note: note,
		X: plots.Axis{Label: "read per token", Unit: "MiB"}, Y: plots.Axis{Label: "perplexity ÷ dense", Free: true},
		Marks: []plots.Mark{{Label: "dense", At: 1, Horizontal: true}}}
	for _, x := range rs {
		f.Y.Log = f.Y.Log || x.Ratio > 1.5
	}
	for _, k := range kinds(rs) {
		s := plots.Series{Name: k}
		for _, x := range rs {
			if kind(x) == k {
				s.X, s.Y = append(s.X, x.BytesPerToken/(1<<20)), append(s.Y, x.Ratio)
				s.Err, s.Labels = append(s.Err, x.RatioStdErr), append(s.Labels, fmt.Sprintf("%.0f %%", 100*x.Sparsity))
			}
		}
		f.Series = append(f.Series, s)
	}
	return f
}

// bars has a group for each K_max and a bar for each kind of rung.
func bars(rs []ladder.Result, ks []int, title, note, label string, value func(ladder.Result) (v, stderr float64)) plots.Figure {
	f := plots.Figure{Kind: plots.Bars, Title: title, Note: note, X: plots.Axis{Label: "sparsity"}, Y: plots.Axis{Label: label}, Values: true}
	for _, k := range kinds(rs) {
		s := plots.Series{Name: k}
		for range ks {
			s.Y, s.Err = append(s.Y, math.NaN()), append(s.Err, 0)
		}
		for _, x := range rs {
			if i := slices.Index(ks, x.KMax); kind(x) == k {
				s.Y[i], s.Err[i] = value(x)
			}
		}
		f.Series = append(f.Series, s)
	}
	for _, k := range ks {
		for _, x := range rs {
			if x.KMax == k {
				f.Categories = append(f.Categories, fmt.Sprintf("%.0f %% (K_max %d)", 100*x.Sparsity, k))
				break
			}
		}
	}
	return f
}

// overLayers has a line for each rung.
func overLayers(rs []ladder.Result, d int, title, note, label string, value func(ladder.Result) []float64) plots.Figure {
	f := plots.Figure{Title: title, Note: note, Y: plots.Axis{Label: label, Free: true}}
	for _, x := range rs {
		f.Series = append(f.Series, line(kind(x), d, value(x)))
		f.X = layerAxis(d, len(value(x)))
	}
	return f
}

// layerAxis marks at most twelve of n layers from d on.
func layerAxis(d, n int) plots.Axis {
	a := plots.Axis{Label: "layer"}
	for l := 0; l < n; l += (n + 11) / 12 {
		a.Ticks = append(a.Ticks, plots.Tick{At: float64(d + l), Label: fmt.Sprint(d + l)})
	}
	return a
}

func line(name string, d int, ys []float64) plots.Series {
	s := plots.Series{Name: name, Y: ys}
	for i := range ys {
		s.X = append(s.X, float64(d+i))
	}
	return s
}

// accuracy shows how well the selectors' predictions hold, over the layers.
func accuracy(rs []ladder.Result, d int, note string) plots.Figure {
	f := plots.Figure{Title: "How well the neurons are predicted", Note: note, Y: plots.Axis{Label: "accuracy"}}
	for _, x := range rs {
		f.X = layerAxis(d, len(x.HitsLayers))
		if x.Choice != ladder.Predicted || x.ReadCap > 0 || x.Margin > 0 {
			continue
		}
		switch {
		case x.TopOneLayers != nil:
			f.Series = append(f.Series, line(x.Selector+": right ids, top 1", d, x.TopOneLayers))
		case x.RankLayers != nil && x.Selector != bundle.SelectorStatic:
			f.Series = append(f.Series, line(x.Selector+": rank correlation of scores", d, x.RankLayers))
		}
		f.Series = append(f.Series, line(x.Selector+": of the K_max most important", d, x.HitsLayers))
	}
	return f
}
