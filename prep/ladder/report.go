package ladder

import (
	"math"

	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/eval"
)

// Report is the ladder.
type Report struct {
	Protocol Protocol `json:"protocol"`
	Warnings []string `json:"warnings,omitempty"`
	Rungs    []Result `json:"rungs"` // the dense one first
}

// Protocol says what was measured on.
type Protocol struct {
	Bundles   []string `json:"bundles"`
	Layers    int      `json:"layers"`
	Neurons   int      `json:"neurons"`
	RowStride int      `json:"row_stride"` // bytes that reading one neuron moves
	Device    bool     `json:"device_arithmetic"`

	TextSHA256 string `json:"text_sha256,omitempty"`
	Tokens     int    `json:"tokens,omitempty"` // of the whole text
	Window     int    `json:"window,omitempty"`
	Windows    int    `json:"windows,omitempty"`
	BOS        bool   `json:"bos,omitempty"`
	Scored     int    `json:"scored_tokens,omitempty"`
}

// Result is what one rung came to.
type Result struct {
	Rung
	Sparsity float64 `json:"sparsity"`
	Bundle   string  `json:"bundle,omitempty"`

	Perplexity  float64 `json:"perplexity,omitempty"`
	StdErr      float64 `json:"standard_error,omitempty"` // of the perplexity, from the spread of the windows
	Ratio       float64 `json:"ratio,omitempty"`          // to the dense perplexity
	RatioStdErr float64 `json:"ratio_standard_error,omitempty"`
	Agreement   float64 `json:"agreement,omitempty"` // tokens whose likeliest continuation is the dense one
	Drift       float64 `json:"drift,omitempty"`     // root mean square change of the tokens' log-probabilities against dense

	Recall        float64   `json:"recall,omitempty"` // mean share of importance that is computed
	RecallLayers  []float64 `json:"recall_per_layer,omitempty"`
	Hits          float64   `json:"hits,omitempty"` // mean share of the K_max most important neurons that is computed
	HitsLayers    []float64 `json:"hits_per_layer,omitempty"`
	TopOne        float64   `json:"top1,omitempty"` // predicted centroid ids that are the right ones
	TopOneLayers  []float64 `json:"top1_per_layer,omitempty"`
	Rank          float64   `json:"rank_correlation,omitempty"` // of scores with importance
	RankLayers    []float64 `json:"rank_correlation_per_layer,omitempty"`
	Reuse         float64   `json:"reuse,omitempty"`
	RowsPerToken  float64   `json:"rows_per_token,omitempty"`
	BytesPerToken float64   `json:"bytes_per_token,omitempty"`

	HellaSwag []ItemsResult `json:"hellaswag,omitempty"`
}

// ItemsResult is what a rung came to on HellaSwag, and the share of items that it answers as the dense model does.
type ItemsResult struct {
	eval.HellaSwag
	Same           float64 `json:"same"`
	SameStdErr     float64 `json:"same_standard_error"`
	SameNorm       float64 `json:"same_norm"`
	SameNormStdErr float64 `json:"same_norm_standard_error"`
}

// text fills in the figures of the first n windows.
func (r *Result) text(n int, s, dense *state, g bundle.Geometry) {
	ws, ds := s.Windows[:n], dense.Windows[:n]
	nll, base, scored := make([]float64, n), make([]float64, n), make([]int, n)
	agree, tokens, drift := 0, 0, 0.0
	for i, w := range ws {
		if w.Drift != nil {
			drift += *w.Drift
		}
		nll[i], base[i], scored[i] = w.NLL, w.NLL-ds[i].NLL, w.Scored
		agree += w.Agree
		tokens += w.Tokens
	}
	r.Perplexity, r.StdErr = eval.ExpMean(nll, scored)
	r.Ratio, r.RatioStdErr = eval.ExpMean(base, scored)
	total := 0
	for _, k := range scored {
		total += k
	}
	r.Agreement, r.Drift = float64(agree)/float64(total), math.Sqrt(drift/float64(total))
	layers := len(ws[0].Reads)
	if layers == 0 || tokens == 0 {
		return
	}
	reads, ids, sampled, tables := int64(0), make([]float64, layers), 0, 0
	r.RecallLayers, r.HitsLayers, r.RankLayers = make([]float64, layers), make([]float64, layers), make([]float64, layers)
	for _, w := range ws {
		for l := range layers {
			reads += w.Reads[l]
			r.RecallLayers[l] += w.Recall[l] / float64(tokens)
			r.HitsLayers[l] += w.Hits[l] / float64(tokens)
			ids[l] += float64(w.IDs[l])
			r.RankLayers[l] += w.Rank[l]
		}
		sampled, tables = sampled+w.Sampled, max(tables, w.Tables)
	}
	r.Recall, r.Hits = mean(r.RecallLayers), mean(r.HitsLayers)
	if sampled > 0 {
		for l := range layers {
			r.RankLayers[l] /= float64(sampled)
		}
		r.Rank = mean(r.RankLayers)
	} else {
		r.RankLayers = nil
	}
	if tables > 0 && sampled > 0 {
		for l := range layers {
			ids[l] /= float64(tables * sampled)
		}
		r.TopOneLayers, r.TopOne = ids, mean(ids)
	}
	r.RowsPerToken = float64(reads) / float64(tokens)
	r.BytesPerToken = bytesRead(g, r.RowsPerToken)
	r.Reuse = 1 - r.RowsPerToken/float64(layers*r.KMax)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// items fills in the figures of the first n items.
func (r *Result) items(n, shots int, s, dense *state) error {
	own, exact := eval.Summarise(s.Items[:n], shots), eval.Summarise(dense.Items[:n], shots)
	res := ItemsResult{HellaSwag: *own}
	var err error
	res.Same, res.SameStdErr, res.SameNorm, res.SameNormStdErr, err = eval.Agreement(own, exact)
	r.HellaSwag = append(r.HellaSwag, res)
	return err
}
