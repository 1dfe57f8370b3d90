package train

import (
	"neuroprefetcher/runtime/predictor"
)

// tensor is one of predictor.safetensors: matrices are float16 there, norms and biases float32.
type tensor struct {
	name  string
	shape []int
	data  []float32 // view into the weights
}

func (t tensor) half() bool { return len(t.shape) == 2 }

// layout lists the file's tensors, in its order, as views into w.
func (s shape) layout(w *weights) (all []tensor) {
	add := func(name string, data []float32, shape ...int) { all = append(all, tensor{name, shape, data}) }
	for j := range w.proj {
		add(predictor.ProjName(j), w.proj[j], s.t, s.h)
	}
	add(predictor.Gate0Name, w.gate0, s.k0, s.t)
	for i := range w.norm {
		add(predictor.BlockNormName(i), w.norm[i], s.t)
		add(predictor.BlockW1Name(i), w.w1[i], s.inner(), s.t)
		add(predictor.BlockW2Name(i), w.w2[i], s.t, s.inner())
	}
	add(predictor.FinalName, w.final, s.t)
	at := 0
	for c, k := range s.heads {
		add(s.head(c), w.heads[at*s.t:(at+k)*s.t], k, s.t)
		add(s.head(c)+".bias", w.bias[at:at+k], k)
		at += k
	}
	return all
}
