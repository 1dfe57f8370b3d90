package bundle

// What a length from disk may be at most. Checked before anything is allocated.
const (
	MaxLayers      = 1024           // a trailer stores the layer in 16 bits; the largest open models have 126
	MaxHidden      = 1 << 16        // bounds a record: 3 rows of at most 128 KiB
	MaxNeurons     = 1 << 20        // a trailer stores the neuron in 32 bits; the largest open models have 53,248
	MaxAlign       = 1 << 16        // no drive asks for more than 64 KiB
	MaxStride      = 1 << 20        // 3 rows of MaxHidden float16 values, trailer and padding
	MaxManifest    = 16 << 20       // bytes of manifest.json
	MaxMembers     = 64             // members a manifest may list
	MaxConfig      = 4 << 20        // bytes of config.json and its neighbours
	MaxTokenizer   = 256 << 20      // bytes of tokenizer.json
	maxMemberBytes = int64(1) << 50 // one member; far above any drive of today, far below overflow
)
