package tokenizer

import (
	"hash/maphash"
	"unicode/utf8"
)

// vocab holds the model's tokens: one blob of bytes, where each id's bytes lie, and an open-addressing hash from bytes to id.
type vocab struct {
	blob  []byte
	start []uint32 // by id
	size  []uint16 // by id; 0 where the id has no token (no token is empty)
	slots []int32  // id + 1, 0 free; length a power of two
	seed  maphash.Seed
	count int

	ascii [utf8.RuneSelf]int32 // tokens of one ASCII character, -1 where missing
}

func newVocab(count int, top int32, bytes int) *vocab {
	n := 64
	for n*2 < count*3 { // at most two thirds full
		n *= 2
	}
	v := &vocab{
		blob: make([]byte, 0, bytes), start: make([]uint32, top+1), size: make([]uint16, top+1),
		slots: make([]int32, n), seed: maphash.MakeSeed(),
	}
	for i := range v.ascii {
		v.ascii[i] = -1
	}
	return v
}

// put adds a token. It reports false when the token or the id is there already.
func (v *vocab) put(token []byte, id int32) bool {
	if v.size[id] != 0 {
		return false
	}
	mask := uint64(len(v.slots) - 1)
	i := maphash.Bytes(v.seed, token) & mask
	for ; v.slots[i] != 0; i = (i + 1) & mask {
		if string(v.bytes(v.slots[i]-1)) == string(token) {
			return false
		}
	}
	v.slots[i] = id + 1
	v.start[id] = uint32(len(v.blob))
	v.size[id] = uint16(len(token))
	v.blob = append(v.blob, token...)
	v.count++
	if len(token) == 1 && token[0] < utf8.RuneSelf {
		v.ascii[token[0]] = id
	}
	return true
}

// bytes returns the token of an id in range, nil where there is none.
func (v *vocab) bytes(id int32) []byte {
	s := v.start[id]
	return v.blob[s : s+uint32(v.size[id])]
}

// find returns the id of a token, or -1.
func (v *vocab) find(token []byte) int32 {
	mask := uint64(len(v.slots) - 1)
	for i := maphash.Bytes(v.seed, token) & mask; v.slots[i] != 0; i = (i + 1) & mask {
		if id := v.slots[i] - 1; string(v.bytes(id)) == string(token) {
			return id
		}
	}
	return -1
}

func (v *vocab) findString(token string) int32 {
	mask := uint64(len(v.slots) - 1)
	for i := maphash.String(v.seed, token) & mask; v.slots[i] != 0; i = (i + 1) & mask {
		if id := v.slots[i] - 1; string(v.bytes(id)) == token {
			return id
		}
	}
	return -1
}

// char returns the id of a token of one character, or -1.
func (v *vocab) char(c string) int32 {
	if len(c) == 1 && c[0] < utf8.RuneSelf {
		return v.ascii[c[0]]
	}
	return v.findString(c)
}
