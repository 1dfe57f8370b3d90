package checkpoint

import (
	"encoding/json"
	"math"

	"neuroprefetcher/format"
)

// Rope is how positions rotate queries and keys.
type Rope struct {
	Theta       float64 `json:"theta"`
	Kind        string  `json:"kind,omitempty"`         // "" (no scaling), "linear", "llama3"
	Factor      float64 `json:"factor,omitempty"`       // linear, llama3
	LowFreq     float64 `json:"low_freq,omitempty"`     // llama3: low_freq_factor
	HighFreq    float64 `json:"high_freq,omitempty"`    // llama3: high_freq_factor
	OriginalMax int     `json:"original_max,omitempty"` // llama3: original_max_position_embeddings
}

// defaultTheta is what the supported families mean by an absent rope_theta; the first Llama-2 files have none.
const defaultTheta = 10000

// rope resolves the dialects: theta at the top level, in rope_parameters (newer files) or in rope_scaling; the kind of
// scaling under rope_type or type. Places that disagree are refused, for whichever we took, half of the readers would
// take the other, and the error would show on long texts only.
func (o *object) rope() Rope {
	r := Rope{}
	from := "" // where theta was found
	take := func(b *object) {
		v, ok := b.real("rope_theta")
		switch {
		case !ok:
		case from == "":
			r.Theta, from = v, b.prefix+"rope_theta"
		case v != r.Theta:
			b.fail("rope_theta", "is %v but %s is %v", v, from, r.Theta)
		}
	}
	take(o)
	scaled := "" // the block that gave the kind
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		b := o.sub(key)
		if b == nil {
			continue
		}
		take(b)
		s, given := b.scaling()
		if b.err == nil && given {
			s.Theta = r.Theta
			if scaled != "" && s != (Rope{r.Theta, r.Kind, r.Factor, r.LowFreq, r.HighFreq, r.OriginalMax}) {
				o.fail(key, "and %s disagree", scaled)
			}
			r, scaled = s, key
		}
		if o.err == nil {
			o.err = b.err
		}
	}
	if from == "" {
		r.Theta = defaultTheta
	}
	if o.err == nil {
		if err := r.validate(); err != nil {
			o.err = format.Inputf("%s: %w", o.file, err)
		}
	}
	return r
}

// scaling reads a rope_scaling or rope_parameters block except for its theta. given is false for an empty one.
func (b *object) scaling() (r Rope, given bool) {
	for _, k := range b.keys() {
		v, _ := b.value(k)
		var m map[string]json.RawMessage
		if json.Unmarshal(v, &m) == nil {
			b.fail(k, "is a block of its own: positions that differ between layer types are not supported")
			return r, false
		}
	}
	b.refusePartialRotary()
	kind, hasNew := b.text("rope_type")
	old, hasOld := b.text("type")
	switch {
	case hasNew && hasOld && kind != old:
		b.fail("rope_type", "is %q but type is %q", kind, old)
	case !hasNew && hasOld:
		kind = old
	case !hasNew && !hasOld:
		for _, k := range b.keys() {
			if k != "rope_theta" && k != "partial_rotary_factor" {
				b.fail("rope_type", "is missing beside %s", k)
			}
		}
		return r, false
	}
	number := func(key string) float64 {
		v, ok := b.real(key)
		if !ok {
			b.fail(key, "is missing, rope type %q needs it", kind)
		}
		return v
	}
	switch kind {
	case "default":
	case "linear":
		r.Kind, r.Factor = kind, number("factor")
	case "llama3":
		r.Kind, r.Factor = kind, number("factor")
		r.LowFreq, r.HighFreq = number("low_freq_factor"), number("high_freq_factor")
		if !b.has("original_max_position_embeddings") {
			b.fail("original_max_position_embeddings", "is missing, rope type %q needs it", kind)
		}
		r.OriginalMax = b.whole("original_max_position_embeddings", 0, 1, format.MaxPositions)
	default:
		b.fail("rope_type", "%q is not supported (default, linear, llama3 are)", kind)
	}
	return r, true
}

// refusePartialRotary refuses heads of which only a part is rotated.
func (o *object) refusePartialRotary() {
	if v, ok := o.real("partial_rotary_factor"); ok && v != 1 {
		o.fail("partial_rotary_factor", "is %v; only whole heads are rotated here", v)
	}
	if o.has("mrope_section") {
		o.fail("mrope_section", "is given; multimodal positions are not supported")
	}
}

func (r Rope) validate() error {
	bad := func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) }
	if bad(r.Theta) || r.Theta < 1 {
		return format.Inputf("rope_theta %v is less than 1", r.Theta)
	}
	switch r.Kind {
	case "":
		return nil
	case "linear", "llama3":
		if bad(r.Factor) || r.Factor < 1 {
			return format.Inputf("rope factor %v is less than 1", r.Factor)
		}
	default:
		return format.Inputf("rope type %q is not supported", r.Kind)
	}
	if r.Kind != "llama3" {
		return nil
	}
	switch {
	case bad(r.LowFreq) || bad(r.HighFreq) || r.LowFreq >= r.HighFreq:
		return format.Inputf("rope low_freq_factor %v is not positive and below high_freq_factor %v", r.LowFreq, r.HighFreq)
	case r.OriginalMax < 1 || r.OriginalMax > format.MaxPositions:
		return format.Inputf("rope original_max_position_embeddings %d is out of range", r.OriginalMax)
	}
	return nil
}

// InvFreq gives the HeadDim/2 inverse frequencies (radians for each position), scaling applied: pair i turns by
// theta^(-2i/HeadDim). linear divides them all by the factor. llama3 divides those whose wavelength is above
// OriginalMax/LowFreq, keeps those below OriginalMax/HighFreq, and goes from one to the other in between.
func (c *Config) InvFreq() []float64 {
	out := make([]float64, c.HeadDim/2)
	for i := range out {
		f := math.Pow(c.Rope.Theta, -2*float64(i)/float64(c.HeadDim))
		switch c.Rope.Kind {
		case "linear":
			f /= c.Rope.Factor
		case "llama3":
			f = c.Rope.llama3(f)
		}
		out[i] = f
	}
	return out
}

func (r Rope) llama3(f float64) float64 {
	turns := float64(r.OriginalMax) * f / (2 * math.Pi) // full turns within the original context
	switch {
	case turns < r.LowFreq:
		return f / r.Factor
	case turns > r.HighFreq:
		return f
	}
	smooth := (turns - r.LowFreq) / (r.HighFreq - r.LowFreq)
	return (1-smooth)*f/r.Factor + smooth*f
}
