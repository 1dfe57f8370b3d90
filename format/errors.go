package format

import (
	"errors"
	"fmt"
)

// The kinds of failure that commands turn into exit codes. Test with errors.Is.
var (
	ErrInput   = errors.New("bad input")    // exit 3: a file or value that is wrong, damaged, missing or unsupported
	ErrCorrupt = errors.New("corrupt")      // a kind of ErrInput: bytes that contradict their own checksum or shape
	ErrFit     = errors.New("does not fit") // exit 4: the memory budget cannot hold what must be resident
	ErrIO      = errors.New("i/o failure")  // exit 5: the drive or file system failed while working
)

// kindError carries a message without showing its kind.
type kindError struct {
	err   error
	kinds []error
}

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return append([]error{e.err}, e.kinds...) }

// Inputf reports input that is wrong, missing or unsupported; the text names the file and the tensor or key.
func Inputf(f string, a ...any) error {
	return &kindError{fmt.Errorf(f, a...), []error{ErrInput}}
}

// Corruptf reports bytes that are damaged or lie about themselves.
func Corruptf(f string, a ...any) error {
	return &kindError{fmt.Errorf(f, a...), []error{ErrCorrupt, ErrInput}}
}

// Fitf reports a budget that cannot hold the residents; the text carries the arithmetic.
func Fitf(f string, a ...any) error {
	return &kindError{fmt.Errorf(f, a...), []error{ErrFit}}
}

// IOf reports a failing drive or file system.
func IOf(f string, a ...any) error {
	return &kindError{fmt.Errorf(f, a...), []error{ErrIO}}
}

// hintError adds what to do to an error without changing its text.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

// Hint attaches advice that commands print on a line of its own.
func Hint(err error, hint string) error { return &hintError{err, hint} }

// HintOf returns the advice attached to err, or "".
func HintOf(err error) string {
	var h *hintError
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}
