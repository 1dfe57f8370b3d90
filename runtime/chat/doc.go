// Package chat renders a model's chat template: Jinja, as Hugging Face ships it, with the settings that transformers uses.
//
// The engine is gonja, with its own versions of what differs from Python (overrides.go) and fences around what a hostile template could do
// (guard.go): no files, no unbounded loops, recursion, output or time. A template that needs more is refused when it is parsed, so at start.
//
// What users write is text. RenderSegments marks the places where it only looks like a control token, and tokenizer.EncodeSegments keeps them text.
//
// Imports: format for error kinds, runtime/tokenizer for Segment. Nothing is set up before the first New. Start at New.
package chat
