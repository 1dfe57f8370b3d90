package checkpoint

// Params counts the parameters of a model of this shape.
func (c *Config) Params() int64 {
	h, kv, q := int64(c.Hidden), int64(c.KVHeads*c.HeadDim), int64(c.Heads*c.HeadDim)
	layer := h*(2*q+2*kv) + 3*h*int64(c.Intermediate) + 2*h
	if c.QKVBias {
		layer += q + 2*kv
	}
	embed := int64(c.Vocab) * h
	if !c.Tied {
		embed *= 2
	}
	return int64(c.Layers)*layer + embed + h
}
