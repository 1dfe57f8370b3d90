package checkpoint_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
)

// config is TINY's config.json with changes; "-" takes a key out.
func config(changes string) []byte {
	m := map[string]any{
		"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
		"vocab_size": 320, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
	}
	var over map[string]any
	if err := json.Unmarshal([]byte("{"+changes+"}"), &over); err != nil {
		panic(changes)
	}
	for k, v := range over {
		if v == "-" {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func parse(t *testing.T, changes string) *checkpoint.Config {
	t.Helper()
	c, err := checkpoint.ParseConfig("dir/config.json", config(changes))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRopeDialects(t *testing.T) {
	llama3 := `"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64`
	scaled := checkpoint.Rope{Theta: 500000, Kind: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, OriginalMax: 64}
	for changes, want := range map[string]checkpoint.Rope{
		``:                                     {Theta: 10000},
		`"rope_theta":500000`:                  {Theta: 500000},
		`"rope_theta":5e5,"rope_scaling":null`: {Theta: 500000},
		`"rope_theta":null`:                    {Theta: 10000},
		`"rope_parameters":{"rope_type":"default","rope_theta":500000}`: {Theta: 500000},
		`"rope_parameters":{"rope_theta":500000}`:                       {Theta: 500000},
		`"rope_parameters":{"type":"default"},"rope_theta":500000`:      {Theta: 500000},
		`"rope_scaling":{"rope_type":"default","rope_theta":500000}`:    {Theta: 500000},
		`"rope_scaling":{}`: {Theta: 10000},
		`"rope_parameters":{"rope_type":"default","rope_theta":500000},"rope_theta":500000`:                                           {Theta: 500000},
		`"rope_scaling":{"type":"linear","factor":4.0}`:                                                                               {Theta: 10000, Kind: "linear", Factor: 4},
		`"rope_scaling":{"rope_type":"linear","factor":4}`:                                                                            {Theta: 10000, Kind: "linear", Factor: 4},
		`"rope_scaling":{"rope_type":"linear","type":"linear","factor":4}`:                                                            {Theta: 10000, Kind: "linear", Factor: 4},
		`"rope_scaling":{"type":"linear","factor":4,"rope_type":null}`:                                                                {Theta: 10000, Kind: "linear", Factor: 4},
		`"rope_theta":500000,"rope_scaling":{"rope_type":"llama3",` + llama3 + `}`:                                                    scaled,
		`"rope_parameters":{"rope_type":"llama3","rope_theta":500000,` + llama3 + `}`:                                                 scaled,
		`"rope_parameters":{"rope_type":"llama3","rope_theta":500000,"partial_rotary_factor":1,` + llama3 + `}`:                       scaled,
		`"rope_theta":500000,"rope_scaling":{"rope_type":"llama3",` + llama3 + `},"rope_parameters":{"type":"llama3",` + llama3 + `}`: scaled,
	} {
		if got := parse(t, changes).Rope; got != want {
			t.Errorf("%s: %+v, want %+v", changes, got, want)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct{ changes, want string }{
		// Positions.
		{`"rope_scaling":{"type":"yarn","factor":4}`, `rope_scaling.rope_type "yarn" is not supported`},
		{`"rope_scaling":{"rope_type":"dynamic","factor":4}`, `"dynamic" is not supported`},
		{`"rope_parameters":{"full_attention":{"rope_type":"default"},"sliding_attention":{"rope_type":"default"}}`, "rope_parameters.full_attention is a block"},
		{`"rope_theta":10000,"rope_parameters":{"rope_type":"default","rope_theta":500000}`, "rope_parameters.rope_theta is 500000 but rope_theta is 10000"},
		{`"rope_scaling":{"rope_type":"llama3","factor":8,"high_freq_factor":4,"original_max_position_embeddings":64}`, "rope_scaling.low_freq_factor is missing"},
		{`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"original_max_position_embeddings":64}`, "rope_scaling.high_freq_factor is missing"},
		{`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}`, "original_max_position_embeddings is missing"},
		{`"rope_scaling":{"rope_type":"llama3","low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`, "rope_scaling.factor is missing"},
		{`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":null,"high_freq_factor":4,"original_max_position_embeddings":64}`, "low_freq_factor is missing"},
		{`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":64}`, "low_freq_factor 4"},
		{`"rope_scaling":{"type":"linear"}`, "rope_scaling.factor is missing"},
		{`"rope_scaling":{"type":"linear","factor":0}`, "factor 0"},
		{`"rope_scaling":{"type":"linear","factor":"4"}`, "rope_scaling.factor is \"4\", not a number"},
		{`"rope_scaling":{"type":"linear","rope_type":"llama3","factor":4}`, "rope_scaling.rope_type"},
		{`"rope_scaling":{"factor":4}`, "rope_scaling.rope_type is missing"},
		{`"rope_scaling":"linear"`, "rope_scaling is"},
		{`"rope_scaling":{"type":"linear","factor":4},"rope_parameters":{"rope_type":"default","rope_theta":10000}`, "disagree"},
		{`"rope_scaling":{"type":"linear","factor":4},"rope_parameters":{"rope_type":"linear","factor":8}`, "disagree"},
		{`"rope_theta":0`, "rope_theta 0"},
		{`"rope_theta":"big"`, "rope_theta is"},
		{`"partial_rotary_factor":0.5`, "partial_rotary_factor is 0.5"},
		{`"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`, "rope_parameters.partial_rotary_factor"},
		{`"rope_scaling":{"type":"default","mrope_section":[1,2]}`, "mrope_section"},

		// Families and settings.
		{`"model_type":"mixtral"`, `model_type "mixtral" is not supported`},
		{`"model_type":"-"`, "model_type is missing"},
		{`"model_type":null`, "model_type is missing"},
		{`"model_type":7`, "model_type is 7"},
		{`"hidden_act":"gelu"`, `hidden_act is "gelu"`},
		{`"attention_bias":true`, "attention_bias is true"},
		{`"model_type":"mistral","attention_bias":true`, "attention_bias is true"},
		{`"mlp_bias":true`, "mlp_bias is true"},
		{`"mlp_bias":"no"`, "mlp_bias is"},
		{`"quantization_config":{"quant_method":"gptq"}`, "quantization_config is given (quant_method gptq)"},
		{`"compression_config":{}`, "compression_config is given"},

		// Sizes.
		{`"hidden_size":"-"`, "hidden_size is missing"},
		{`"hidden_size":null`, "hidden_size is missing"},
		{`"num_hidden_layers":0`, "num_hidden_layers is 0"},
		{`"num_hidden_layers":1000000`, "num_hidden_layers is 1000000, want 1 to 1024"},
		{`"num_hidden_layers":1e300`, "num_hidden_layers is"},
		{`"vocab_size":-5`, "vocab_size is -5"},
		{`"intermediate_size":96.5`, "intermediate_size is 96.5, not a whole number"},
		{`"num_attention_heads":"4"`, "num_attention_heads is"},
		{`"num_attention_heads":5`, "hidden_size 64 is not a multiple of num_attention_heads 5"},
		{`"num_key_value_heads":3`, "4 attention heads are not a multiple of 3"},
		{`"num_key_value_heads":8`, "key-value heads is 8"},
		{`"head_dim":15`, "head_dim 15 is odd"},
		{`"head_dim":0`, "head_dim is 0"},
		{`"rms_norm_eps":0`, "rms_norm_eps 0"},
		{`"max_position_embeddings":0`, "max_position_embeddings is 0"},

		// Windows.
		{`"model_type":"mistral","sliding_window":0`, "sliding_window is 0"},
		{`"model_type":"mistral","sliding_window":16,"layer_types":["full_attention","sliding_attention","full_attention"]`, "layer_types mix"},
		{`"model_type":"mistral","layer_types":["sliding_attention","sliding_attention","sliding_attention"]`, "no sliding_window is in force"},
		{`"model_type":"mistral","layer_types":["full_attention"]`, "layer_types names 1 layers"},
		{`"model_type":"mistral","layer_types":["full_attention","chunked_attention","full_attention"]`, `layer 1 the type "chunked_attention"`},
		{`"model_type":"qwen2","use_sliding_window":true,"sliding_window":16,"max_window_layers":1`, "layer_types mix"},
		{`"model_type":"qwen2","use_sliding_window":true,"sliding_window":16,"layer_types":["full_attention","full_attention","sliding_attention"]`, "layer_types mix"},
		{`"layer_types":7`, "layer_types is 7"},

		// Tokens.
		{`"bos_token_id":320`, "bos_token_id is 320"},
		{`"bos_token_id":1.5`, "bos_token_id is 1.5"},
		{`"eos_token_id":[1,"x"]`, "eos_token_id is"},
		{`"eos_token_id":true`, "eos_token_id is true"},
		{`"tie_word_embeddings":"yes"`, "tie_word_embeddings is"},
	} {
		_, err := checkpoint.ParseConfig("dir/config.json", config(c.changes))
		if err == nil {
			t.Errorf("%s: accepted", c.changes)
			continue
		}
		if msg := err.Error(); !errors.Is(err, format.ErrInput) || !strings.HasPrefix(msg, "dir/config.json: ") || !strings.Contains(msg, c.want) || strings.Contains(msg, "\n") {
			t.Errorf("%s: %q, want %q", c.changes, msg, c.want)
		}
	}
	for raw, want := range map[string]string{
		``: "ends too early", `[]`: "not a JSON object", `{"a":1,"a":2}`: `duplicate key "a"`, `{"rope_theta":NaN}`: "syntax error", "{\"a\":\"\xff\"}": "not UTF-8",
	} {
		if _, err := checkpoint.ParseConfig("dir/config.json", []byte(raw)); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, format.ErrInput) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
}

func TestWindows(t *testing.T) {
	for changes, want := range map[string]int{
		`"model_type":"mistral"`:                                                0,
		`"model_type":"mistral","sliding_window":null`:                          0,
		`"model_type":"mistral","sliding_window":16`:                            16,
		`"model_type":"mistral","sliding_window":16,"use_sliding_window":false`: 0,
		`"model_type":"mistral","sliding_window":16,"use_sliding_window":null`:  16,
		`"model_type":"mistral","sliding_window":16,"layer_types":["sliding_attention","sliding_attention","sliding_attention"]`: 16,
		`"model_type":"mistral","sliding_window":16,"layer_types":["full_attention","full_attention","full_attention"]`:          0,
		`"model_type":"llama","sliding_window":16`:                                                                                                       0,
		`"model_type":"qwen2","sliding_window":16,"max_window_layers":0`:                                                                                 0,
		`"model_type":"qwen2","sliding_window":16`:                                                                                                       0,
		`"model_type":"qwen2","sliding_window":16,"use_sliding_window":false`:                                                                            0,
		`"model_type":"qwen2","sliding_window":16,"use_sliding_window":true`:                                                                             0, // max_window_layers 28 is more than there are
		`"model_type":"qwen2","sliding_window":16,"use_sliding_window":true,"max_window_layers":3`:                                                       0,
		`"model_type":"qwen2","sliding_window":16,"use_sliding_window":true,"max_window_layers":0`:                                                       16,
		`"model_type":"qwen2","sliding_window":16,"use_sliding_window":true,"layer_types":["sliding_attention","sliding_attention","sliding_attention"]`: 16,
		`"model_type":"qwen2","sliding_window":null,"use_sliding_window":true,"max_window_layers":0`:                                                     0,
	} {
		if got := parse(t, changes).SlidingWindow; got != want {
			t.Errorf("%s: window %d, want %d", changes, got, want)
		}
	}
}

func TestNullIsAbsent(t *testing.T) {
	all := `"head_dim":%,"num_key_value_heads":%,"rms_norm_eps":%,"max_position_embeddings":%,"hidden_act":%,"attention_bias":%,"mlp_bias":%,"rope_theta":%,
	"rope_scaling":%,"rope_parameters":%,"sliding_window":%,"use_sliding_window":%,"layer_types":%,"tie_word_embeddings":%,"bos_token_id":%,"eos_token_id":%,
	"quantization_config":%,"partial_rotary_factor":%,"pretraining_tp":%`
	got, want := parse(t, strings.ReplaceAll(all, "%", "null")), parse(t, strings.ReplaceAll(all, "%", `"-"`))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("null %+v\nabsent %+v", got, want)
	}
	if w := (checkpoint.Config{ModelType: "llama", Layers: 3, Hidden: 64, Intermediate: 96, Heads: 4, KVHeads: 4, HeadDim: 16, Vocab: 320, MaxPositions: 2048,
		RMSEps: 1e-6, Rope: checkpoint.Rope{Theta: 10000}, BOS: -1, EOS: []int{}}); !reflect.DeepEqual(*got, w) {
		t.Errorf("defaults %+v\nwant     %+v", *got, w)
	}
}

func TestAcceptedOddities(t *testing.T) {
	c := parse(t, `"pretraining_tp":2,"hidden_size":64.0,"head_dim":32,"attention_bias":false,"unknown":{"a":[1]},"bos_token_id":[1]`)
	if c.Hidden != 64 || c.HeadDim != 32 || c.BOS != 1 {
		t.Errorf("%+v", c)
	}
	if c := parse(t, `"model_type":"qwen2","attention_bias":true`); !c.QKVBias {
		t.Error("qwen2 has biases on q, k and v")
	}
}

// TestRoundTrip: a manifest gives back the configuration that was put in, and Validate accepts it.
func TestRoundTrip(t *testing.T) {
	c := parse(t, `"model_type":"mistral","sliding_window":16,"rope_theta":500000,"eos_token_id":[2,7],
	"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got checkpoint.Config
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, *c) {
		t.Errorf("%s: %+v, %v", b, got, err)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(c *checkpoint.Config){
		"layers": func(c *checkpoint.Config) { c.Layers = 0 }, "hidden": func(c *checkpoint.Config) { c.Hidden = math.MaxInt },
		"eps": func(c *checkpoint.Config) { c.RMSEps = math.NaN() }, "eos": func(c *checkpoint.Config) { c.EOS = []int{7, 2} },
		"eos outside": func(c *checkpoint.Config) { c.EOS = []int{320} }, "bos": func(c *checkpoint.Config) { c.BOS = 320 },
		"type": func(c *checkpoint.Config) { c.ModelType = "gpt2" }, "rope": func(c *checkpoint.Config) { c.Rope.Kind = "yarn" },
		"theta": func(c *checkpoint.Config) { c.Rope.Theta = math.Inf(1) }, "window": func(c *checkpoint.Config) { c.SlidingWindow = -1 },
	} {
		bad := *c
		spoil(&bad)
		if err := bad.Validate(); !errors.Is(err, format.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInvFreq holds the inverse frequencies against the published rules, written here in terms of wavelengths as they
// were published, and against numbers worked out by hand.
func TestInvFreq(t *testing.T) {
	const llama3 = `"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`
	plain := func(theta, i, dim float64) float64 { return 1 / math.Pow(theta, i/dim) }
	smooth := func(inv, factor, low, high, old float64) float64 {
		wavelen := 2 * math.Pi / inv
		if wavelen < old/high {
			return inv
		}
		if wavelen > old/low {
			return inv / factor
		}
		s := (old/wavelen - low) / (high - low)
		return (1-s)*inv/factor + s*inv
	}
	for _, c := range []struct {
		changes string
		want    func(i float64) float64 // i = 0, 2, 4, ..
	}{
		{``, func(i float64) float64 { return plain(10000, i, 16) }},
		{`"rope_theta":500000`, func(i float64) float64 { return plain(500000, i, 16) }},
		{`"rope_scaling":{"type":"linear","factor":4.0}`, func(i float64) float64 { return plain(10000, i, 16) / 4 }},
		{llama3, func(i float64) float64 { return smooth(plain(500000, i, 16), 8, 1, 4, 64) }},
		{strings.ReplaceAll(llama3, ":64}", ":8192}") + `,"head_dim":128`, func(i float64) float64 { return smooth(plain(500000, i, 128), 8, 1, 4, 8192) }},
	} {
		cfg := parse(t, c.changes)
		got := cfg.InvFreq()
		if len(got) != cfg.HeadDim/2 {
			t.Fatalf("%s: %d frequencies", c.changes, len(got))
		}
		for k, f := range got {
			if w := c.want(float64(2 * k)); math.Abs(f-w) > 1e-12*w {
				t.Errorf("%s: frequency %d is %v, want %v", c.changes, k, f, w)
			}
		}
	}
	// theta 10000, 16 dimensions: 10^(-k/2).
	for k, w := range []float64{1, 0.31622776601683794, 0.1, 0.031622776601683794, 0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794} {
		if f := parse(t, ``).InvFreq()[k]; math.Abs(f-w) > 1e-12*w {
			t.Errorf("frequency %d is %v, want %v", k, f, w)
		}
	}
	// llama3 over 64 positions: pair 0 turns 10.2 times and stays, pair 1 (1.97 turns) lies between, pairs from 2 on (0.38
	// turns and fewer) are slowed by 8.
	inv, un := parse(t, llama3).InvFreq(), parse(t, `"rope_theta":500000`).InvFreq()
	if inv[0] != 1 || !(inv[1] < un[1] && inv[1] > un[1]/8) {
		t.Errorf("pairs 0 and 1: %v, unscaled %v", inv[:2], un[:2])
	}
	for k := 2; k < 8; k++ {
		if inv[k] != un[k]/8 {
			t.Errorf("pair %d: %v, unscaled %v", k, inv[k], un[k])
		}
	}
}

// FuzzConfig: no input panics, what is accepted is valid and survives the manifest.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{``, `"rope_theta":500000`, `"rope_parameters":{"rope_type":"default","rope_theta":500000}`, `"rope_scaling":{"type":"linear","factor":4.0}`,
		`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`, `"model_type":"qwen2"`,
		`"model_type":"mistral","sliding_window":16`, `"head_dim":null`, `"eos_token_id":[2,7]`, `"quantization_config":{}`, `"layer_types":["full_attention"]`} {
		f.Add(config(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := checkpoint.ParseConfig("f", data)
		if err != nil {
			if !errors.Is(err, format.ErrInput) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		for i, v := range c.InvFreq() {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Fatalf("frequency %d is %v", i, v)
			}
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again checkpoint.Config
		if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(again, *c) {
			t.Fatalf("%s: %+v, %v", b, again, err)
		}
	})
}
