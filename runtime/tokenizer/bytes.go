package tokenizer

// Bytes returns the bytes that id stands for inside a text, which need not be whole characters. An id without a token
// has none.
func (t *Tokenizer) Bytes(id int32) []byte {
	token, ok := t.Token(id)
	if !ok {
		return nil
	}
	d := t.decoder
	if t.IsSpecial(id) {
		return []byte(token)
	}
	if d.byteLevel {
		return appendTokenBytes(nil, token)
	}
	for _, f := range d.steps {
		token = f(token, false)
	}
	if b, ok := byteToken(token); ok && d.byteFallback {
		return []byte{b}
	}
	return []byte(token)
}
