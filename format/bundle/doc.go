// Package bundle reads, writes, checks and describes bundles: the directory that npprep makes of a
// checkpoint and nprun runs from.
//
// The bytes are defined in format/SPEC.md; a test here parses its tables and compares them with the
// constants of this package, so the two cannot drift. The picture:
//
//	manifest.json       written last; sizes and SHA-256 of every other member, CRC-32C of every layer of rows
//	config.json, tokenizer.json, chat_template.jinja, ...   copied from the source
//	resident.safetensors   attention, norms, embeddings, head
//	centroids, predictor.safetensors   what the selectors need; absent from a dense bundle
//	rows.np             header page | layer 0: record 0, record 1, ... | layer 1 | ...
//	rows.crc            only when records carry no trailer: CRC-32C of every record
//
// Imports: format, format/checkpoint. Nothing of prep, runtime or cmd.
//
// Invariants
//   - Geometry is data: readers take stride, alignment and offsets from the file, they never compute them.
//   - What depends on a version is a method of Version (version.go), never a comparison elsewhere.
//   - No length from disk is believed before it was compared with limits.go and with the size of its file.
//   - A directory without a manifest is not a bundle; Writer puts a bundle in place by one rename.
//   - A RowsWriter or Writer that failed once stays failed.
//
// Start at Open and Bundle.Verify for reading, at RowsWriter and Writer for writing.
package bundle
