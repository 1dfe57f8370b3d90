package serve

import "strings"

// stopper looks for stop strings in text that comes in pieces. What it lets through does not depend on how the text is
// cut: the first stop string to end ends the text, and of several that end together the one that began first.
type stopper struct {
	stops []string
	held  string // the longest end of the text that may be the beginning of a stop string
}

// push takes a piece and returns what is certain. After hit nothing more may be pushed.
func (s *stopper) push(piece string) (text string, hit bool) {
	if len(s.stops) == 0 {
		return piece, false
	}
	buf := s.held + piece
	start, end := -1, len(buf)+1
	for _, stop := range s.stops {
		if i := strings.Index(buf, stop); i >= 0 && (i+len(stop) < end || i+len(stop) == end && i < start) {
			start, end = i, i+len(stop)
		}
	}
	if start >= 0 {
		s.held = ""
		return buf[:start], true
	}
	keep := 0
	for _, stop := range s.stops {
		for k := min(len(stop)-1, len(buf)); k > keep; k-- {
			if strings.HasSuffix(buf, stop[:k]) {
				keep = k
			}
		}
	}
	s.held = buf[len(buf)-keep:]
	return buf[:len(buf)-keep], false
}

// flush returns what is held when the text ends.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
