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

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
)

func chatCommand() *cli.Command {
	return &cli.Command{
		Name:  "chat",
		Usage: "talk with the model in the terminal",
		Description: "One line is one message; an empty line or the end of input leaves. Ctrl-C stops an answer, and leaves at the prompt.\n\nExamples:\n" +
			"  nprun chat -b build/smollm2-135m/bundle\n  nprun chat -b BUNDLE --system \"Answer in one sentence.\" --temp 0.7\n" +
			"  echo \"What is the capital of France?\" | nprun chat -b BUNDLE",
		Flags: append(append(engineFlags(), sampleFlags()...),
			&cli.StringFlag{Name: "system", Usage: "system message"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: 512, Usage: "at most `N` tokens per answer; 0 is as many as the context holds"}),
		Action: runChat,
	}
}

func runChat(c *cli.Context) error {
	if c.Bool("json") {
		return clix.Usagef("chat has no --json; nprun generate --chat has")
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
	var msgs []chat.Message
	if s := c.String("system"); s != "" {
		msgs = append(msgs, chat.Message{Role: "system", Content: s})
	}
	prompt := ""
	if term.IsTerminal(int(os.Stdin.Fd())) {
		prompt = "> "
	}
	// From here on an interruption is told apart by when it comes; what the process does with one by itself stays off.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := c.Context.Err(); err != nil {
		return err
	}
	lines := make(chan string)
	failed := make(chan error, 1)
	go readLines(os.Stdin, lines, failed)
	for {
		fmt.Fprint(os.Stderr, prompt)
		var line string
		select {
		case <-signals:
			fmt.Fprintln(os.Stderr)
			return context.Canceled
		case err := <-failed:
			stats := collect(e, c.String("bundle"))
			fmt.Fprintln(notes(c))
			stats.print(notes(c))
			return err
		case line = <-lines:
		}
		if line == "" {
			continue
		}
		msgs = append(msgs, chat.Message{Role: "user", Content: line})
		ids, err := t.Encode(e.Tokenizer, msgs, true)
		if err != nil {
			return err
		}
		text, err := answer(e, engine.Request{Prompt: e.Resume(ids), MaxTokens: limit, Sample: params}, signals)
		if err != nil {
			return err
		}
		msgs = append(msgs, chat.Message{Role: "assistant", Content: text})
	}
}

// maxLine is the longest message.
const maxLine = 1 << 20

// readLines sends the lines of r; at its end, or at an empty line, it sends what it ended with to done.
func readLines(r io.Reader, lines chan<- string, done chan<- error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		line := strings.TrimRight(s.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			break
		}
		if strings.ToValidUTF8(line, "") != line {
			done <- format.Inputf("the message is not UTF-8 text")
			return
		}
		lines <- line
	}
	err := s.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = format.Inputf("the message is longer than %d bytes", maxLine)
	}
	done <- err
}

// answer streams one answer to stdout. Ctrl-C ends it: what was said stays in the history. SIGTERM, and a stdout that
// takes no more, end the talk.
func answer(e *engine.Engine, r engine.Request, signals <-chan os.Signal) (string, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case s := <-signals:
			if s == os.Interrupt {
				cancel(errStopped)
			} else {
				cancel(context.Canceled)
			}
		case <-ctx.Done():
		}
	}()
	res, err := e.Generate(ctx, r, func(s string) {
		if _, err := fmt.Fprint(stdout, s); err != nil {
			cancel(err)
		}
	})
	cancel(nil)
	<-watched
	fmt.Fprintln(stdout)
	switch {
	case stdout.err != nil:
		return "", stdout.err
	case errors.Is(err, context.Canceled) && context.Cause(ctx) == errStopped:
		err = nil
	}
	return res.Text, err
}

// errStopped marks an answer that the user has heard enough of.
var errStopped = errors.New("answer stopped")
