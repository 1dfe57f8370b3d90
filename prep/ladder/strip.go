package ladder

// strip is tokens that pass the layers together: a window of text, or an item's context and endings.
type strip struct {
	ids     []int32 // (T)
	parts   []part  // the rows in order
	rows    []int   // what is scored: token targets[i] after row rows[i]
	targets []int32
	fresh   bool // the slot maps begin as the shots left them, not as the strip before did
}

// part is consecutive tokens of one sequence.
type part struct {
	n, pos int
	fork   bool // begins where the strip's first part ended
}

// firstRow tells whether row 0 is at position 0, which is computed whole.
func (s *strip) atZero() bool { return s.parts[0].pos == 0 }

// reach is how many positions of the cache the strip uses.
func (s *strip) reach() int {
	n := 0
	for _, p := range s.parts {
		n = max(n, p.pos+p.n)
	}
	return n
}
