package gguf

// blockType is the storage of one ggml tensor type: blocks of Values values in Bytes bytes.
type blockType struct {
	Name   string
	Values int
	Bytes  int
	// decode turns whole blocks into values; nil where the type is known by name and size but not read.
	decode func(dst []float32, src []byte)
}

// types by ggml's number. Numbers that ggml retired (4, 5, 31–33, 36–38) stay unknown.
var types = map[uint32]blockType{
	0:  {"F32", 1, 4, decodeF32},
	1:  {"F16", 1, 2, decodeF16},
	2:  {"Q4_0", 32, 18, decodeQ40},
	3:  {"Q4_1", 32, 20, decodeQ41},
	6:  {"Q5_0", 32, 22, decodeQ50},
	7:  {"Q5_1", 32, 24, decodeQ51},
	8:  {"Q8_0", 32, 34, decodeQ80},
	9:  {"Q8_1", 32, 40, nil},
	10: {"Q2_K", 256, 84, nil},
	11: {"Q3_K", 256, 110, nil},
	12: {"Q4_K", 256, 144, decodeQ4K},
	13: {"Q5_K", 256, 176, decodeQ5K},
	14: {"Q6_K", 256, 210, decodeQ6K},
	15: {"Q8_K", 256, 292, nil},
	16: {"IQ2_XXS", 256, 66, nil},
	17: {"IQ2_XS", 256, 74, nil},
	18: {"IQ3_XXS", 256, 98, nil},
	19: {"IQ1_S", 256, 50, nil},
	20: {"IQ4_NL", 32, 18, nil},
	21: {"IQ3_S", 256, 110, nil},
	22: {"IQ2_S", 256, 82, nil},
	23: {"IQ4_XS", 256, 136, nil},
	24: {"I8", 1, 1, nil},
	25: {"I16", 1, 2, nil},
	26: {"I32", 1, 4, nil},
	27: {"I64", 1, 8, nil},
	28: {"F64", 1, 8, nil},
	29: {"IQ1_M", 256, 56, nil},
	30: {"BF16", 1, 2, decodeBF16},
	34: {"TQ1_0", 256, 54, nil},
	35: {"TQ2_0", 256, 66, nil},
	39: {"MXFP4", 32, 17, nil},
}

// byName finds a type by its name.
func byName(name string) (blockType, bool) {
	for _, t := range types {
		if t.Name == name {
			return t, true
		}
	}
	return blockType{}, false
}

// Readable says whether ReadF32 can decode tensors of that type.
func Readable(name string) bool {
	t, ok := byName(name)
	return ok && t.decode != nil
}

// TypeSize returns how many values a block of the type holds and in how many bytes.
func TypeSize(name string) (values, bytes int, ok bool) {
	t, ok := byName(name)
	return t.Values, t.Bytes, ok
}
