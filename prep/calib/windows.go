package calib

import (
	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
)

const (
	// DefaultTokens is how many tokens capture takes when nothing else is said.
	DefaultTokens = 200_000
	// DefaultWindow is the length of a window in tokens.
	DefaultWindow = 512
	// TokensPerCentroid is how many tokens a centroid needs to be more than these tokens.
	TokensPerCentroid = 32
)

// Window is a run of tokens that the model sees as one sequence.
type Window struct{ Start, Len int }

// Cut cuts tokens tokens into windows; the last may be shorter.
func Cut(tokens, window int) []Window {
	var ws []Window
	for at := 0; at < tokens; at += window {
		ws = append(ws, Window{at, min(window, tokens-at)})
	}
	return ws
}

// Spread picks n of the windows, evenly spaced, or all of them if there are no more than n.
func Spread(ws []Window, n int) []Window {
	if n >= len(ws) {
		return ws
	}
	out := make([]Window, n)
	for i := range out {
		out[i] = ws[i*len(ws)/n]
	}
	return out
}

// Groups cuts the windows into runs of at least tokens tokens, except for the last.
func Groups(ws []Window, tokens int) [][]Window {
	var out [][]Window
	for len(ws) > 0 {
		n, have := 0, 0
		for n < len(ws) && (n == 0 || have < tokens) {
			have += ws[n].Len
			n++
		}
		out = append(out, ws[:n])
		ws = ws[n:]
	}
	return out
}

// Tokens is the sum of the windows' lengths.
func Tokens(ws []Window) int {
	n := 0
	for _, w := range ws {
		n += w.Len
	}
	return n
}

// Sizes applies the defaults to a stage's token count and window length.
func Sizes(c *checkpoint.Config, tokens, window int) (int, int, error) {
	if tokens == 0 {
		tokens = DefaultTokens
	}
	if window == 0 {
		window = DefaultWindow
		if c.MaxPositions > 0 {
			window = min(window, c.MaxPositions)
		}
	}
	if tokens < 1 || window < 1 {
		return 0, 0, format.Inputf("%d tokens in windows of %d: both must be positive", tokens, window)
	}
	if c.MaxPositions > 0 && window > c.MaxPositions {
		return 0, 0, format.Inputf("windows of %d tokens exceed the model's context of %d", window, c.MaxPositions)
	}
	return tokens, window, nil
}
