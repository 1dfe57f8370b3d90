package checkpoint

import (
	"encoding/json"
	"fmt"

	"neuroprefetcher/format"
)

// window resolves the sliding window: the number of positions that a position sees, itself included, or 0 for all.
// One window for all layers is supported; layers that differ are refused.
func (o *object) window(kind string, layers int, p *parsed) int {
	given := o.has("sliding_window")
	w := o.whole("sliding_window", 0, 1, format.MaxPositions)
	use, useGiven := o.flag("use_sliding_window")
	switch {
	case useGiven && !use:
		w = 0
	case kind == "llama" && given:
		p.warnings = append(p.warnings, fmt.Sprintf("%s: sliding_window is ignored, llama has none", o.file))
		w = 0
	case kind == "qwen2" && !use:
		w = 0 // this family's window is off unless it is turned on
	}
	full, sliding := o.layerTypes(kind, layers, w > 0)
	switch {
	case o.err != nil:
	case full > 0 && sliding > 0:
		o.fail("layer_types", "mix full attention (%d layers) with sliding_window %d (%d layers), which is not supported", full, w, sliding)
	case sliding > 0 && w == 0:
		o.fail("layer_types", "ask for sliding attention, but no sliding_window is in force")
	case sliding == 0:
		w = 0
	}
	return w
}

// layerTypes counts the layers of each kind, from layer_types or from the family's rule.
func (o *object) layerTypes(kind string, layers int, windowed bool) (full, sliding int) {
	v, ok := o.value("layer_types")
	if !ok {
		if !windowed {
			return layers, 0
		}
		if kind == "qwen2" { // the first max_window_layers see everything
			full = min(layers, o.whole("max_window_layers", 28, 0, format.MaxPositions))
		}
		return full, layers - full
	}
	var list []string
	if err := json.Unmarshal(v, &list); err != nil {
		o.fail("layer_types", "is %s, not a list of strings", short(v))
		return layers, 0
	}
	if len(list) != layers {
		o.fail("layer_types", "names %d layers, num_hidden_layers is %d", len(list), layers)
	}
	for i, t := range list {
		switch t {
		case "full_attention":
			full++
		case "sliding_attention":
			sliding++
		default:
			o.fail("layer_types", "gives layer %d the type %q, which is not supported", i, t)
		}
	}
	return full, sliding
}
