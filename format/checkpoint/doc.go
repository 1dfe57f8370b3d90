// Package checkpoint opens a Hugging Face model directory: it decides which files belong to the model, what config.json
// means in each of its dialects, and that every tensor the model needs is there once with the right shape and a dtype
// that can be read. Nothing is loaded: weights stay in read-only mappings.
//
//	open.go       Open: the order of the checks
//	files.go      which files: index, shards, stray files
//	needs.go      the tensors of the supported families and their shapes
//	config.go     config.json → Config; values.go, rope.go, window.go: its dialects
//	tokens.go     begin and end tokens from four files; the largest token id
//	template.go   the chat template
//
// Supported are the families llama, mistral and qwen2. Everything that would change the arithmetic and is not done here is
// refused by name. It may import format and format/tensors. Start at Open and ParseConfig.
package checkpoint
