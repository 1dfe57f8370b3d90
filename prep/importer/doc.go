// Package importer turns a GGUF file into a Hugging Face checkpoint directory: config.json, tokenizer.json, tokenizer_config.json,
// chat_template.jinja, generation_config.json and a float16 model.safetensors.
//
// It may import format and its packages, kernels, and runtime/tokenizer (to hold the new tokenizer.json against its reader).
//
// Invariants:
//   - The directory appears whole or not at all: everything is written into a temporary sibling, synced, and renamed; a run that fails leaves a previous good directory as it was.
//   - One tensor's rows are in memory a bounded piece at a time, whatever the size of the file.
//   - Matrices become float16 rounded to nearest even; a value that float16 cannot hold is a refusal that names the tensor. Norms and biases become float32.
//   - What is not understood (architecture, RoPE scaling, pre-tokenizer, tensor) is refused by name before anything is written.
//
// Start at Import (importer.go); config.go, tensors.go, tokenizer.go make the three parts.
package importer
