package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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
	lines := make(chan string)
	failed := make(chan error, 1)
	go readLines(os.Stdin, lines, failed)
	for {
		fmt.Fprint(os.Stderr, prompt)
		var line string
		select {
		case <-c.Context.Done():
			fmt.Fprintln(os.Stderr)
			return c.Context.Err()
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
		text, err := answer(c, e, t, msgs)
		if err != nil {
			return err
		}
		msgs = append(msgs, chat.Message{Role: "assistant", Content: text})
	}
}

// readLines sends the lines of r; at its end, or at an empty line, it sends what it ended with to done.
func readLines(r io.Reader, lines chan<- string, done chan<- error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
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
	done <- s.Err()
}

// answer streams one answer to stdout. Ctrl-C ends the answer: what was said stays in the history.
func answer(c *cli.Context, e *engine.Engine, t *chat.Template, msgs []chat.Message) (string, error) {
	ids, err := t.Encode(e.Tokenizer, msgs, true)
	if err != nil {
		return "", err
	}
	ctx, stop := clix.SignalContext(context.WithoutCancel(c.Context))
	defer stop()
	res, err := e.Generate(ctx, engine.Request{Prompt: e.Resume(ids), MaxTokens: c.Int("max-tokens"), Sample: sampleParams(c)}, func(s string) { fmt.Print(s) })
	fmt.Println()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return res.Text, err
}
