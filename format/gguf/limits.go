package gguf

// Every claim of a header is held against one of these, and against the bytes left in the file, before anything is allocated for it.
const (
	// MaxHeaderBytes bounds the whole header: a vocabulary of 256k tokens with merges takes about 12 MiB.
	MaxHeaderBytes = 256 << 20
	// MaxKeys bounds the key-value pairs; real files have tens.
	MaxKeys = 1 << 16
	// MaxTensors bounds the tensor table; a dense model of 128 layers has about 1,500.
	MaxTensors = 1 << 16
	// MaxKeyBytes is the specification's bound on a key's length.
	MaxKeyBytes = 1<<16 - 1
	// MaxNameBytes bounds a tensor's name; ggml itself allows 64.
	MaxNameBytes = 1024
	// MaxStringBytes bounds one string value; chat templates reach tens of KiB.
	MaxStringBytes = 16 << 20
	// MaxArrayLen bounds an array's elements; vocabularies reach 256k, merges 512k.
	MaxArrayLen = 1 << 22
	// MaxDims is ggml's bound on the dimensions of a tensor.
	MaxDims = 4
	// MaxAlignment bounds general.alignment; 32 is usual, pages and huge pages are conceivable.
	MaxAlignment = 2 << 20
	// DefaultAlignment holds where the file does not say.
	DefaultAlignment = 32
)
