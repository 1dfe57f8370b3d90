package importer

import (
	"math"

	"neuroprefetcher/format"
	"neuroprefetcher/format/gguf"
)

const ropeFreqs = "rope_freqs.weight"

// readRope sets theta and rope_scaling. llama.cpp stores linear scaling as keys and Llama-3 scaling only as a table of factors, one for each frequency.
func (c *config) readRope(g *gguf.File, m meta) error {
	k := func(s string) string { return c.arch + ".rope." + s }
	theta, ok, err := m.number(k("freq_base"))
	if err != nil {
		return err
	}
	if !ok {
		theta = 10000 // ggml's default, and the format's
	}
	if theta <= 0 {
		return format.Inputf("%s: key %q: %v is not positive", m.path, k("freq_base"), theta)
	}
	c.theta = theta
	kind, _, err := m.text(k("scaling.type"))
	if err != nil {
		return err
	}
	factor, hasFactor, err := m.number(k("scaling.factor"))
	if err != nil {
		return err
	}
	if !hasFactor { // the older spelling of linear scaling
		if factor, hasFactor, err = m.number(k("scale_linear")); err != nil {
			return err
		}
	}
	if hasFactor && factor <= 0 {
		if factor < 0 {
			return format.Inputf("%s: key %q: %v is negative", m.path, k("scaling.factor"), factor)
		}
		hasFactor = false // zero means not given
	}
	switch kind {
	case "none":
	case "", "linear":
		switch {
		case hasFactor && factor != 1:
			c.scaling = map[string]any{"rope_type": "linear", "type": "linear", "factor": decimal(factor)}
		case kind == "linear" && !hasFactor:
			return m.missing(k("scaling.factor"))
		}
	default:
		return format.Inputf("%s: key %q: RoPE scaling %q is not supported (none, linear and Llama-3 factors are)", m.path, k("scaling.type"), kind)
	}
	for _, name := range []string{"rope_factors_long.weight", "rope_factors_short.weight"} {
		if _, ok := g.Find(name); ok {
			return format.Inputf("%s: tensor %q: this RoPE scaling is not supported", m.path, name)
		}
	}
	t, ok := g.Find(ropeFreqs)
	if !ok {
		return nil
	}
	if len(t.Shape) != 1 || t.Shape[0] != c.headDim/2 {
		return format.Inputf("%s: tensor %q: shape %v, want [%d]", m.path, ropeFreqs, t.Shape, c.headDim/2)
	}
	factors := make([]float32, t.Shape[0])
	if err := g.ReadF32(t, 0, 1, factors); err != nil {
		return err
	}
	scaling, ok := llama3Scaling(factors, c.theta)
	switch {
	case !ok:
		return format.Inputf("%s: tensor %q: the factors are not those of a Llama-3 RoPE scaling", m.path, ropeFreqs)
	case scaling != nil && c.scaling != nil:
		return format.Inputf("%s: tensor %q: factors and linear scaling together are not supported", m.path, ropeFreqs)
	case scaling != nil:
		c.scaling = scaling.json()
	}
	return nil
}

// llama3 holds the parameters of Llama-3 scaling.
type llama3 struct {
	factor, low, high float64
	original          int
}

func (p llama3) json() map[string]any {
	return map[string]any{"rope_type": "llama3", "factor": decimal(p.factor), "low_freq_factor": decimal(p.low), "high_freq_factor": decimal(p.high), "original_max_position_embeddings": p.original}
}

// factorOf is what the scaling divides a frequency by, as Llama 3.1 publishes it: nothing for short wavelengths, the whole factor for long ones, a blend between.
func (p llama3) factorOf(freq float64) float64 {
	wave := 2 * math.Pi / freq
	switch {
	case wave < float64(p.original)/p.high:
		return 1
	case wave > float64(p.original)/p.low:
		return p.factor
	}
	smooth := (float64(p.original)/wave - p.low) / (p.high - p.low)
	return 1 / ((1-smooth)/p.factor + smooth)
}

// explains says whether p gives the factors, within what float32 arithmetic in another order may differ.
func (p llama3) explains(factors []float32, theta float64) bool {
	for i, f := range factors {
		want := p.factorOf(frequency(i, len(factors), theta))
		if math.Abs(float64(f)-want) > 2e-4*want {
			return false
		}
	}
	return true
}

// frequency i of n for a base theta.
func frequency(i, n int, theta float64) float64 { return math.Pow(theta, -float64(i)/float64(n)) }

// llama3Scaling finds parameters that give the factors. nil and true: the factors are all 1. Only the ratios of original length, low and high matter to the
// result; where the published triple or another with low 1 and high 4 explains the factors it is taken, else low is set to 1 and the others are solved for
// from the blended factors, which are linear in the frequency.
func llama3Scaling(factors []float32, theta float64) (*llama3, bool) {
	top := 1.0
	for _, f := range factors {
		if !(f >= 0.999 && f <= 1e6) {
			return nil, false
		}
		top = max(top, float64(f))
	}
	if top < 1.0001 {
		return nil, true
	}
	tries := []llama3{{top, 1, 4, 8192}}
	for n := 32; n <= 1<<20; n *= 2 {
		tries = append(tries, llama3{top, 1, 4, n})
	}
	if p, ok := solveLlama3(factors, theta, top); ok {
		tries = append(tries, p)
	}
	for _, p := range tries {
		if p.explains(factors, theta) {
			return &p, true
		}
	}
	return nil, false
}

// solveLlama3 fits smooth = (original·x − low)/(high − low), x = freq/2π, through the first and last blended factor, with low = 1.
func solveLlama3(factors []float32, theta, top float64) (llama3, bool) {
	var x, s []float64
	for i, f := range factors {
		if f := float64(f); f > 1.0005 && f < top*0.9995 {
			x = append(x, frequency(i, len(factors), theta)/(2*math.Pi))
			s = append(s, (1/f-1/top)/(1-1/top))
		}
	}
	if len(x) < 2 {
		return llama3{}, false
	}
	n := len(x) - 1
	slope := (s[0] - s[n]) / (x[0] - x[n])
	offset := slope*x[0] - s[0] // low/(high − low)
	if !(slope > 0 && offset > 1e-6) {
		return llama3{}, false
	}
	high, original := 1+1/offset, slope/offset
	if r := math.Round(high*100) / 100; math.Abs(high-r) < 0.01 {
		high = r
	}
	if !(original >= 1 && original <= format.MaxPositions) {
		return llama3{}, false
	}
	return llama3{top, 1, high, int(math.Round(original))}, true
}
