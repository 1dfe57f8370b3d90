package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/sample"
)

func chatCommand() *cli.Command {
	return &cli.Command{
		Name:  "chat",
		Usage: "talk with the model in the terminal",
		Description: "In a terminal, a line is a message; one that ends in \\ goes on in the next, and \"\"\" begins a message that ends with the\n" +
			"next \"\"\". Arrow keys edit and bring back earlier lines. Ctrl-C stops the answer, not the program; Ctrl-D or /exit leaves.\n" +
			"When the context is full the oldest turns are left out, the system message never.\n\n" +
			"  /system [TEXT]   show or set the system message; /system \"\" removes it\n" +
			"  /reset           forget the conversation\n" +
			"  /stats           show speed, memory and reads\n" +
			"  /save FILE       write the conversation: JSON for a name in .json, else text; /save! replaces a file\n" +
			"  /help, /exit     //TEXT sends a message that begins with /\n\n" +
			"From a pipe, every line is a message, whatever it says; an empty line or the end leaves.\n\nExamples:\n" +
			"  nprun chat -b build/smollm2-135m/bundle-0.31\n  nprun chat -b BUNDLE --system \"Answer in one sentence.\" --temp 0.7\n" +
			"  echo \"What is the capital of France?\" | nprun chat -b BUNDLE",
		Flags: withOwn(without(engineFlags(), "json"), append([]cli.Flag{
			&cli.StringFlag{Name: "system", Usage: "system message `TEXT`"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: 512, Usage: "at most `N` tokens per answer; 0 is as many as the context holds"}},
			sampleFlags()...)...),
		Action: runChat,
	}
}

// conversation is a chat in progress.
type conversation struct {
	e         *engine.Engine
	t         *chat.Template
	msgs      []chat.Message // without the system message
	system    string
	sample    sample.Params
	maxTokens int
	bundle    string
	out       *clix.Output // answers
	say       io.Writer    // remarks
	skip      int          // oldest messages that the context no longer holds
	signals   <-chan os.Signal
}

func runChat(c *cli.Context) error {
	if !utf8.ValidString(c.String("system")) {
		return clix.Usagef("--system is not UTF-8 text")
	}
	params, err := sampleParams(c)
	if err != nil {
		return err
	}
	limit, err := maxTokens(c)
	if err != nil {
		return err
	}
	e, err := open(c)
	if err != nil {
		return err
	}
	defer e.Close()
	t, err := newTemplate(e)
	if err != nil {
		return err
	}
	// From here on an interruption is told apart by when it comes; what the process does with one by itself stays off.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := c.Context.Err(); err != nil {
		return err
	}
	v := &conversation{e: e, t: t, system: c.String("system"), sample: params, maxTokens: limit, bundle: c.String("bundle"), out: stdout, say: notes(c), signals: signals}
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintln(v.say, "/help lists the commands, Ctrl-D leaves.")
		return v.talk(newTerminal(signals))
	}
	return v.pipe(os.Stdin)
}

// pipe answers line after line of a text that no one types.
func (v *conversation) pipe(in io.Reader) error {
	lines := make(chan string)
	failed := make(chan error, 1)
	go readLines(in, lines, failed)
	for {
		select {
		case <-v.signals:
			fmt.Fprintln(os.Stderr)
			return context.Canceled
		case err := <-failed:
			stats := collect(v.e, v.bundle)
			fmt.Fprintln(v.say)
			stats.print(v.say)
			return err
		case line := <-lines:
			if err := v.answer(line); err != nil {
				return err
			}
		}
	}
}

// lineReader is where a person's lines come from. Its errors are io.EOF, errInterrupted, or the end of the program.
type lineReader interface {
	line(prompt string) (string, error)
}

// errInterrupted is Ctrl-C at the prompt.
var errInterrupted = errors.New("interrupted")

// talk answers a person until they leave. What goes wrong with one message is said, and the talk goes on.
func (v *conversation) talk(in lineReader) error {
	for {
		message, err := readMessage(in)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errInterrupted):
			fmt.Fprintln(v.say, "(Ctrl-D or /exit leaves)")
			continue
		case err != nil:
			return err
		}
		if strings.HasPrefix(message, "/") && !strings.HasPrefix(message, "//") {
			if v.command(message) {
				return nil
			}
			continue
		}
		if message = strings.TrimPrefix(message, "/"); strings.TrimSpace(message) == "" {
			continue
		}
		select {
		case s := <-v.signals: // a Ctrl-C from before is not for this answer
			if s != os.Interrupt {
				return context.Canceled
			}
		default:
		}
		err = v.answer(message)
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled), v.out.Err != nil:
			return err
		default:
			clix.PrintError(v.say, "nprun", err)
		}
	}
}

// readMessage reads one message: a line, lines joined by \ at their ends, or what stands between two """.
func readMessage(in lineReader) (string, error) {
	line, err := in.line("> ")
	if err != nil {
		return "", err
	}
	const quote = `"""`
	if rest, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), quote); ok {
		var parts []string
		for {
			if text, ok := strings.CutSuffix(strings.TrimRight(rest, " \t"), quote); ok {
				return strings.Trim(strings.Join(append(parts, text), "\n"), "\n"), nil
			}
			parts = append(parts, rest)
			if rest, err = in.line("… "); err != nil {
				return "", err
			}
		}
	}
	var parts []string
	for {
		text, more := strings.CutSuffix(line, `\`)
		parts = append(parts, text)
		if !more {
			return strings.Join(parts, "\n"), nil
		}
		if line, err = in.line("… "); err != nil {
			return "", err
		}
	}
}

// answer streams one answer to v.out. Ctrl-C ends it: what was said stays in the history. SIGTERM, and an output that
// takes no more, end the talk. A message that cannot be answered is forgotten.
func (v *conversation) answer(message string) error {
	if !utf8.ValidString(message) {
		return format.Inputf("the message is not UTF-8 text")
	}
	v.msgs = append(v.msgs, chat.Message{Role: "user", Content: message})
	text, err := v.generate()
	if err != nil {
		v.msgs = v.msgs[:len(v.msgs)-1]
		return err
	}
	v.msgs = append(v.msgs, chat.Message{Role: "assistant", Content: text})
	return nil
}

func (v *conversation) generate() (string, error) {
	ids, err := v.fit()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case s := <-v.signals:
			if s == os.Interrupt {
				cancel(errStopped)
			} else {
				cancel(context.Canceled)
			}
		case <-ctx.Done():
		}
	}()
	res, err := v.e.Generate(ctx, engine.Request{Prompt: v.e.Resume(ids), MaxTokens: v.maxTokens, Sample: v.sample}, func(s string) {
		if _, err := fmt.Fprint(v.out, s); err != nil {
			cancel(err)
		}
	})
	cancel(nil)
	<-watched
	if res.Text != "" || err == nil {
		fmt.Fprintln(v.out)
	}
	switch {
	case v.out.Err != nil:
		return "", v.out.Err
	case errors.Is(err, context.Canceled) && context.Cause(ctx) == errStopped:
		err = nil
	case errors.Is(err, format.ErrInput) && len(v.msgs) > 1:
		err = format.Hint(err, "/reset begins a new conversation, --context N makes room for a longer one")
	}
	return res.Text, err
}

// answerRoom is how many tokens of the context are kept free for an answer, if it may be that long.
const answerRoom = 64

// fit encodes the conversation. Where the context does not hold it and the beginning of an answer, its oldest turns are left
// out from then on, the system message never; that is said the first time. A message that is too long by itself leaves
// the conversation as it is.
func (v *conversation) fit() ([]int32, error) {
	room := min(answerRoom, v.e.Context()/8)
	if v.maxTokens > 0 {
		room = min(room, v.maxTokens)
	}
	whole, err := v.t.Encode(v.e.Tokenizer, v.sent(v.skip), true)
	ids, skip := whole, v.skip
	for err == nil && len(ids)+room > v.e.Context() && len(v.msgs)-skip > 2 {
		skip += 2 // a question and its answer
		ids, err = v.t.Encode(v.e.Tokenizer, v.sent(skip), true)
	}
	if err != nil || skip == v.skip || len(ids) > v.e.Context() {
		return whole, err
	}
	if v.skip == 0 {
		fmt.Fprintf(v.say, "note: the context of %d tokens is full: from here on the oldest turns are left out; --context N makes room for more\n", v.e.Context())
	}
	v.skip = skip
	return ids, nil
}

// errStopped marks an answer that the user has heard enough of.
var errStopped = errors.New("answer stopped")

// all is the conversation with its system message.
func (v *conversation) all() []chat.Message { return v.sent(0) }

// sent is the conversation without its oldest messages.
func (v *conversation) sent(skip int) []chat.Message {
	if v.system == "" {
		return v.msgs[skip:]
	}
	return append([]chat.Message{{Role: "system", Content: v.system}}, v.msgs[skip:]...)
}

// readLines sends the lines of r; at its end, or at an empty line, it sends what it ended with to done.
func readLines(r io.Reader, lines chan<- string, done chan<- error) {
	b := newLineScanner(r)
	for b.Scan() {
		line := strings.TrimRight(b.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			break
		}
		if !utf8.ValidString(line) {
			done <- format.Inputf("the message is not UTF-8 text")
			return
		}
		lines <- line
	}
	err := b.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = format.Inputf("the message is longer than %d bytes", maxLine)
	}
	done <- err
}
