package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/term"

	"neuroprefetcher/format"
)

// maxLine bounds a line of a chat.
const maxLine = 1 << 20

func newLineScanner(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return s
}

// terminal reads lines with editing and history. It is raw only while it reads, so that Ctrl-C is a signal during an
// answer.
type terminal struct {
	t       *term.Terminal
	keys    *keyboard
	signals <-chan os.Signal
}

// keyboard notes Ctrl-C, which the line editor reports as an end like any other.
type keyboard struct {
	interrupted atomic.Bool
}

func (k *keyboard) Read(b []byte) (int, error) {
	n, err := os.Stdin.Read(b)
	if bytes.IndexByte(b[:n], 3) >= 0 {
		k.interrupted.Store(true)
	}
	return n, err
}

func (k *keyboard) Write(b []byte) (int, error) { return os.Stderr.Write(b) }

func newTerminal(signals <-chan os.Signal) *terminal {
	k := &keyboard{}
	return &terminal{t: term.NewTerminal(k, ""), keys: k, signals: signals}
}

// line reads one line; a pasted text of several lines is one line with line ends in it.
func (r *terminal) line(prompt string) (string, error) {
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return "", format.IOf("terminal: %w", err)
	}
	defer term.Restore(fd, old)
	if w, h, err := term.GetSize(int(os.Stderr.Fd())); err == nil && w > 0 {
		_ = r.t.SetSize(w, h)
	}
	r.t.SetPrompt(prompt)
	r.t.SetBracketedPasteMode(true)
	defer r.t.SetBracketedPasteMode(false)
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		var parts []string
		for {
			text, err := r.t.ReadLine()
			parts = append(parts, text)
			if !errors.Is(err, term.ErrPasteIndicator) {
				got <- result{strings.Join(parts, "\n"), err}
				return
			}
		}
	}()
	for {
		select {
		case s := <-r.signals:
			if s != os.Interrupt { // that one is sent by another program: the line that is being typed stays
				return "", context.Canceled
			}
		case x := <-got:
			if x.err != nil {
				os.Stderr.WriteString("\r\n") // the editor leaves the cursor behind what was typed
			}
			if x.err != nil && r.keys.interrupted.Swap(false) {
				// The editor keeps the line and the key that ended it: begin with a new one.
				history := r.t.History
				r.t = term.NewTerminal(r.keys, "")
				r.t.History = history
				return "", errInterrupted
			}
			if x.err == nil && len(x.text) > maxLine {
				return "", format.Inputf("the message is longer than %d bytes", maxLine)
			}
			return x.text, x.err
		}
	}
}
