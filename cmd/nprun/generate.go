package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
)

func generateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "continue a prompt",
		Description: "The text goes to stdout as it is generated, statistics to stderr.\n\nExamples:\n" +
			"  nprun generate -b build/tiny/bundle --prompt \"The fog had not lifted yet when\" --max-tokens 120\n" +
			"  nprun generate -b build/smollm2-135m/bundle-0.31 --chat --prompt \"What is the capital of France?\"\n" +
			"  nprun generate -b BUNDLE --mode sparse --dense-layers 18 --memory 6GiB --prompt \"Once\" --temp 0.8 --seed 7\n" +
			"  echo \"Dear reader,\" | nprun generate -b BUNDLE --prompt - --json",
		Flags: withOwn(engineFlags(), append([]cli.Flag{
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "`TEXT` to continue; - reads stdin"},
			&cli.BoolFlag{Name: "chat", Usage: "the prompt is a user's message: apply the chat template"},
			&cli.StringFlag{Name: "system", Usage: "system message `TEXT` for --chat"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: 256, Usage: "generate at most `N` tokens; 0 is as many as the context holds"},
			&cli.BoolFlag{Name: "ignore-eos", Usage: "go on after the model ends its text"}},
			sampleFlags()...)...),
		Action: generate,
	}
}

func generate(c *cli.Context) error {
	if c.Args().Present() {
		return format.Hint(clix.Usagef("unexpected argument %q", c.Args().First()), "a prompt goes behind --prompt, in quotes")
	}
	if !c.IsSet("prompt") {
		return clix.Usagef("no prompt given (--prompt TEXT, or - for stdin)")
	}
	req := engine.Request{IgnoreEOS: c.Bool("ignore-eos")}
	var err error
	if req.Sample, err = sampleParams(c); err != nil {
		return err
	}
	if req.MaxTokens, err = maxTokens(c); err != nil {
		return err
	}
	if c.IsSet("system") && !c.Bool("chat") {
		return clix.Usagef("--system goes with --chat")
	}
	prompt, err := promptText(c.String("prompt"))
	if err != nil {
		return err
	}
	e, err := open(c)
	if err != nil {
		return err
	}
	defer e.Close()
	var ids []int32
	if c.Bool("chat") {
		t, err := newTemplate(e)
		if err != nil {
			return err
		}
		var msgs []chat.Message
		if s := c.String("system"); s != "" {
			msgs = append(msgs, chat.Message{Role: "system", Content: s})
		}
		if ids, err = t.Encode(e.Tokenizer, append(msgs, chat.Message{Role: "user", Content: prompt}), true); err != nil {
			return err
		}
	} else {
		ids = rawIDs(e, prompt)
	}
	var emit func(string)
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	if !c.Bool("json") {
		emit = func(s string) {
			if _, err := fmt.Fprint(stdout, s); err != nil {
				cancel() // nobody gets the text
			}
		}
	}
	req.Prompt = ids
	res, err := e.Generate(ctx, req, emit)
	if emit != nil && res.Text != "" {
		fmt.Fprintln(stdout)
	}
	if stdout.Err != nil {
		return stdout.Err
	}
	if err != nil {
		return err
	}
	stats := collect(e, c.String("bundle"))
	if c.Bool("json") {
		return clix.WriteJSON(stdout, struct {
			PromptIDs []int32  `json:"prompt_ids"`
			IDs       []int32  `json:"ids"`
			Text      string   `json:"text"`
			Finish    string   `json:"finish_reason"`
			Stats     runStats `json:"stats"`
		}{ids, res.IDs, res.Text, res.Finish, stats})
	}
	fmt.Fprintln(notes(c))
	stats.print(notes(c))
	return nil
}

// promptText is the text of --prompt, or of stdin for "-".
func promptText(s string) (string, error) {
	if s == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<20))
		if err != nil {
			return "", format.IOf("reading the prompt from stdin: %w", err)
		}
		s = string(b)
	}
	if !utf8.ValidString(s) {
		return "", format.Inputf("the prompt is not UTF-8 text")
	}
	return s, nil
}

// rawIDs encodes a prompt with the tokenizer's own specials, a BOS that the text brings along not doubled. An empty
// prompt of a model that has a BOS is that BOS.
func rawIDs(e *engine.Engine, text string) []int32 {
	ids, _ := e.Tokenizer.EncodeCompletion(text)
	if len(ids) == 0 && e.Config.BOS >= 0 {
		ids = []int32{int32(e.Config.BOS)}
	}
	return ids
}

// newTemplate reads the bundle's chat template.
func newTemplate(e *engine.Engine) (*chat.Template, error) {
	path := e.Bundle.Path("chat_template.jinja")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, format.Hint(format.Inputf("%s: the model has no chat template", e.Bundle.Dir), "use nprun generate without --chat")
	}
	if err != nil {
		return nil, format.IOf("%s: %w", path, err)
	}
	token := func(id int) string { s, _ := e.Tokenizer.Token(int32(id)); return s }
	eos := ""
	if len(e.Config.EOS) > 0 {
		eos = token(e.Config.EOS[0])
	}
	return chat.New(string(b), token(e.Config.BOS), eos)
}
