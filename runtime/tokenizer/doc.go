// Package tokenizer turns text into token ids and back, from a Hugging Face tokenizer.json.
//
// It does byte-pair encoding in the two shapes that the supported families use: byte-level (GPT-2, SmolLM2, Llama-3, Qwen2) and SentencePiece-like
// with byte fallback (Llama-2, Mistral). Ids and text equal those of the reference implementation; a file that asks for anything else is refused at
// load, by the name of what it asks for.
//
// A text passes: added tokens (added.go) → normalizer (normalize.go) → added tokens that want normalized text → pre-tokenizer (pretokenize.go,
// scan.go) → merges (bpe.go) → special tokens around it (parse.go, post). Back: decode.go, one state machine for whole and streamed text alike.
//
// The tables are flat (vocab.go, merges.go): about 2.5 MiB for 49,000 tokens, since the runtime lives inside tight budgets.
// A Tokenizer is safe for use by many goroutines; a Stream is not.
//
// Imports: format for error kinds, nothing else of ours. Start at Parse and Encode.
package tokenizer
