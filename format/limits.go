package format

// Caps on what a file may claim. Each is checked, together with the size of the file, before memory is taken; each is
// far above any model in use and far below what would hurt.
const (
	MaxTensorHeader = 100_000_000 // bytes of JSON in a safetensors file: the reference implementation's cap
	MaxTensorRank   = 16          // dimensions of one tensor; weights have one or two
	MaxShards       = 4096        // files of one checkpoint: each stays mapped while it is open
	MaxConfigFile   = 16 << 20    // config.json, generation_config.json, tokenizer_config.json, chat templates
	MaxIndexFile    = 64 << 20    // model.safetensors.index.json: about 100 bytes for each tensor
	MaxTokenizer    = 256 << 20   // tokenizer.json: 256,000 tokens with merges take about 35 MiB
	MaxJSONDepth    = 64          // nesting; tokenizer.json needs 7

	MaxLayers    = 1024    // record trailers hold a layer in 16 bits; 1,024 bounds the per-layer tables
	MaxHidden    = 1 << 17 // H
	MaxNeurons   = 1 << 20 // M: neuron ids are held in 32 bits, masks in M bits
	MaxHeads     = 1 << 12
	MaxHeadDim   = 1 << 12
	MaxVocab     = 1 << 22
	MaxPositions = 1 << 27 // bounds RoPE tables and the KV cache arithmetic
)
