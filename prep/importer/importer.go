package importer

import (
	"context"

	"neuroprefetcher/format"
)

// Options of an import. The zero value is good.
type Options struct {
	// Progress, if set, is called with bytes of float16 and float32 output written and wanted. Calls come from one goroutine.
	Progress func(done, total int64)
}

// Report says what an import found and wrote.
type Report struct {
	Architecture string         `json:"architecture"`
	Tensors      int            `json:"tensors"`       // tensors written
	Types        map[string]int `json:"types"`         // ggml type → tensors read
	BytesRead    int64          `json:"bytes_read"`    // of tensor data
	BytesWritten int64          `json:"bytes_written"` // of tensor data
	Values       int64          `json:"values"`        // values converted to float16
	Underflow    int64          `json:"underflow"`     // non-zero values that became zero
	Rounded      int64          `json:"rounded"`       // values that float16 does not hold exactly
	Vocab        int            `json:"vocab"`
	Merges       int            `json:"merges"`
	Tokenizer    string         `json:"tokenizer"` // the GGUF's tokenizer model and pre-tokenizer
	Unused       []string       `json:"unused"`    // tensors of the GGUF that a checkpoint does not have, such as a table that repeats the configuration
}

// Import reads the GGUF file at ggufPath and publishes a checkpoint directory at outDir.
func Import(ctx context.Context, ggufPath, outDir string, o Options) (Report, error) {
	return Report{}, format.Inputf("%s: not read yet", ggufPath)
}
