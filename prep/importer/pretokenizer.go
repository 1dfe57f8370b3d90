package importer

// preStyle is what a value of tokenizer.ggml.pre stands for in the tokenizer.json of the models that have it.
type preStyle struct {
	normalizer   any
	pre          any
	ignoreMerges bool // a piece that is a token as a whole is taken before merging
	addBOS       bool // where the header is silent
}

// The split patterns, as the models' own tokenizer.json has them.
const (
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func byteLevel(regex bool) map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

func sequence(steps ...any) map[string]any {
	return map[string]any{"type": "Sequence", "pretokenizers": steps}
}

func split(pattern string) map[string]any {
	return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

func splitStyle(pattern string) map[string]any { return sequence(split(pattern), byteLevel(false)) }

func digitStyle() map[string]any {
	return sequence(map[string]any{"type": "Digits", "individual_digits": true}, byteLevel(true))
}

// preStyles by the value of tokenizer.ggml.pre. Only names whose models' tokenizer.json is known are listed; any other is refused by name.
var preStyles = map[string]preStyle{
	"gpt-2":     {pre: byteLevel(true)},
	"default":   {pre: byteLevel(true)},
	"smollm":    {pre: digitStyle()},
	"starcoder": {pre: digitStyle()},
	"refact":    {pre: digitStyle()},
	"llama-bpe": {pre: splitStyle(llama3Pattern), ignoreMerges: true, addBOS: true},
	"llama3":    {pre: splitStyle(llama3Pattern), ignoreMerges: true, addBOS: true},
	"llama-v3":  {pre: splitStyle(llama3Pattern), ignoreMerges: true, addBOS: true},
	"qwen2":     {pre: splitStyle(qwen2Pattern), normalizer: map[string]any{"type": "NFC"}},
	"tekken":    {pre: splitStyle(tekkenPattern), ignoreMerges: true, addBOS: true},
}
